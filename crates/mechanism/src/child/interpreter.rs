//! One script in the embedded language, with all that the language itself can limit.

use std::collections::BTreeSet;

use rhai::{
    AST, Array, CallFnOptions, Dynamic, Engine, EvalAltResult, Map, Scope,
    packages::{Package, StandardPackage},
};
use serde_json::Value;

use super::{
    functions,
    value::{to_json, to_script},
};
use crate::{
    fault::{Fault, FaultKind},
    limits::Limits,
    view::Hook,
    wire::CASES_BYTES,
};

/// Entries of an array or a map, those inside of it counted, beside what the script is given.
const ENTRIES: usize = 50_000;

/// How deep one expression may be. The parser's own recursion is bounded by it.
const EXPRESSION_DEPTH: usize = 64;

/// What the language has and a script has not. They can also be reached by their names as texts, so they are
/// replaced and not only forbidden.
const REFUSED: [&str; 2] = ["sleep", "exit"];

/// The function that declares a script's unit cases.
const CASES: &str = "cases";

/// A script, parsed and ready.
pub(super) struct Interpreter {
    engine: Engine,
    ast: AST,
    limits: Limits,
    /// The last one that was sent.
    trace: Dynamic,
    trace_bytes: usize,
}

impl Interpreter {
    /// Parses a script and computes its constants.
    ///
    /// Errors: it does not parse, its constants fail, it has no hook or one with other arguments.
    pub(super) fn start(script: &str, limits: Limits) -> Result<Self, Fault> {
        let mut engine = engine(&limits);
        let ast = engine.compile(script).map_err(|error| {
            let deep = matches!(*error.0, rhai::ParseErrorType::ExprTooDeep);
            Fault::new(if deep { FaultKind::Depth } else { FaultKind::Syntax }, error.to_string())
        })?;
        let mut scope = Scope::new();
        engine.run_ast_with_scope(&mut scope, &ast).map_err(|error| fault(*error))?;
        publish(&mut engine, constants(&scope)?);
        let interpreter = Self { engine, ast, limits, trace: Dynamic::UNIT, trace_bytes: 0 };
        interpreter.check_hooks()?;
        Ok(interpreter)
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The hooks that the script has.
    pub(super) fn hooks(&self) -> BTreeSet<Hook> {
        Hook::ALL.into_iter().filter(|hook| self.has(hook.name(), hook.arity())).collect()
    }

    fn has(&self, name: &str, arity: usize) -> bool {
        self.ast.iter_functions().any(|function| function.name == name && function.params.len() == arity)
    }

    fn check_hooks(&self) -> Result<(), Fault> {
        for hook in Hook::ALL {
            let named = self.ast.iter_functions().find(|function| function.name == hook.name());
            if let Some(function) = named.filter(|_| !self.has(hook.name(), hook.arity())) {
                let message =
                    format!("fn {hook} takes {} arguments, not {}", hook.arity(), function.params.len());
                return Err(Fault::new(FaultKind::Syntax, message));
            }
        }
        if self.hooks().is_empty() {
            let names = Hook::ALL.map(Hook::name).join(", ");
            return Err(Fault::new(FaultKind::NoHook, format!("the script has no hook; there are {names}")));
        }
        Ok(())
    }

    /// Calls a hook. Everything that it is given is its own copy. Answers what it answers, or for `record` the
    /// state that it leaves. `bytes`: all that was sent for this call.
    pub(super) fn call(
        &mut self,
        hook: Hook,
        state: Value,
        given: Option<Value>,
        trace: Option<Value>,
        bytes: usize,
    ) -> Result<Value, Fault> {
        if let Some(trace) = trace {
            self.trace_bytes = bytes;
            self.trace = to_script(trace);
        }
        allow(&mut self.engine, &self.limits, self.trace_bytes + bytes);
        let mut arguments: Vec<Dynamic> = given.map(to_script).into_iter().collect();
        if hook != Hook::Record {
            arguments.push(self.trace.clone());
        }
        let mut state = to_script(state);
        let answer = self.run(hook.name(), &mut state, arguments)?;
        let left = if hook == Hook::Record { state } else { answer };
        hand_over(left, self.limits.depth, self.limits.state_bytes)
    }

    /// The unit cases that the script declares; none where it has no `cases`.
    pub(super) fn cases(&mut self) -> Result<Value, Fault> {
        if !self.has(CASES, 0) {
            return Ok(Value::Array(Vec::new()));
        }
        let mut nothing = Dynamic::UNIT;
        let cases = self.run(CASES, &mut nothing, Array::new())?;
        hand_over(cases, self.limits.depth, CASES_BYTES)
    }

    fn run(&self, name: &str, state: &mut Dynamic, arguments: Vec<Dynamic>) -> Result<Dynamic, Fault> {
        let options = CallFnOptions::new().eval_ast(false).bind_this_ptr(state);
        let mut scope = Scope::new();
        self.engine
            .call_fn_with_options::<Dynamic>(options, &mut scope, &self.ast, name, arguments)
            .map_err(|error| fault(*error))
    }
}

/// Sets how large values may be. The language counts all that lies inside a value, so what the script is given is
/// allowed on top; as JSON it has more bytes than texts or entries.
fn allow(engine: &mut Engine, limits: &Limits, bytes: usize) {
    engine
        .set_max_string_size(limits.text_bytes + bytes)
        .set_max_array_size(ENTRIES + bytes)
        .set_max_map_size(ENTRIES + bytes);
}

/// What a script leaves, as JSON of bounded depth and size.
fn hand_over(value: Dynamic, depth: usize, most: usize) -> Result<Value, Fault> {
    let value = to_json(value, depth)?;
    let bytes = value.to_string().len();
    match bytes <= most {
        true => Ok(value),
        false => Err(Fault::new(FaultKind::Size, format!("{bytes} bytes; {most} are allowed"))),
    }
}

/// The language without I/O, within limits.
fn engine(limits: &Limits) -> Engine {
    let mut engine = Engine::new_raw();
    StandardPackage::new().register_into_engine(&mut engine);
    functions::register(&mut engine);
    for name in REFUSED {
        let refuse = move || Err::<(), _>(Box::<EvalAltResult>::from(format!("{name} is not there")));
        engine.register_fn(name, refuse);
        engine.register_fn(name, move |_: Dynamic| refuse());
        engine.register_fn(name, move |_: rhai::INT| refuse());
        engine.register_fn(name, move |_: rhai::FLOAT| refuse());
    }
    engine.disable_symbol("eval");
    engine
        .on_print(|_| {})
        .on_debug(|_, _, _| {})
        .set_max_operations(limits.operations)
        .set_max_call_levels(limits.depth)
        .set_max_expr_depths(EXPRESSION_DEPTH, EXPRESSION_DEPTH)
        .set_max_variables(256)
        .set_max_functions(128);
    allow(&mut engine, limits, 0);
    engine
}

/// The script's constants. Variables beside them would be seen by no function.
fn constants(scope: &Scope) -> Result<Map, Fault> {
    let mut constants = Map::new();
    for (name, constant, value) in scope.iter() {
        if !constant {
            let message = format!("no function sees `let {name}`; write `const {name} = …`");
            return Err(Fault::new(FaultKind::Syntax, message));
        }
        constants.insert(name.into(), value);
    }
    Ok(constants)
}

/// Lets all functions see the constants, those without a name as well.
fn publish(engine: &mut Engine, constants: Map) {
    // marked as deprecated only to say that it may change between versions
    #[expect(deprecated)]
    engine.on_var(move |name, local, context| match local == 0 && !context.scope().contains(name) {
        true => Ok(constants.get(name).cloned()),
        false => Ok(None),
    });
}

/// A failure of the language as one of ours.
fn fault(error: EvalAltResult) -> Fault {
    use EvalAltResult as E;
    let mut message = error.to_string();
    let kind = match error.unwrap_inner() {
        E::ErrorTooManyOperations(..) => FaultKind::Operations,
        E::ErrorStackOverflow(..) => FaultKind::Depth,
        E::ErrorDataTooLarge(..) | E::ErrorTooManyVariables(..) => FaultKind::Size,
        E::ErrorParsing(..) => FaultKind::Syntax,
        E::ErrorDataRace(..) => {
            message +=
                "; a closure uses the variable that it is called on: copy what it needs into another one";
            FaultKind::Thrown
        }
        _ => FaultKind::Thrown,
    };
    Fault::new(kind, message)
}
