//! `docs/reference/configuration.md`, from the types that `ratchet.toml` is read into.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write,
    fs,
};

use ratchet::config::{FILE, Task};
use syn::{Expr, Fields, ImplItem, Item, Stmt, Type, punctuated::Punctuated};

use super::{
    MADE, page,
    types::{Types, serde, variants},
};
use crate::source::{Source, doc, first};

const MODULE: &str = "ratchet::config";
/// The least that is a task.
const LEAST: [(&str, &str); 3] = [
    ("task", "name = \"toy\"\neditable = [\"cand/**\"]\n"),
    ("metric", "name = \"loss\"\n"),
    ("score", "command = [\"sh\"]\n"),
];

/// The least without one table: TOML knows none twice.
fn least(without: &str) -> String {
    LEAST
        .iter()
        .filter(|(name, _)| *name != without)
        .map(|(name, keys)| format!("[{name}]\n{keys}"))
        .collect()
}

/// One table of the file.
struct Section {
    name: String,
    about: String,
    keys: Vec<Key>,
}

struct Key {
    name: String,
    shape: String,
    /// As TOML; `None`: it must be given, or there is none.
    default: Option<String>,
    required: bool,
    about: String,
}

#[test]
fn the_configuration_page_is_what_the_code_reads() {
    let mut text = format!(
        "# ratchet.toml\n\n{MADE}\n\nThe task contract. It is read strictly: a key that is not listed here is an error that \
         names its line and the keys there are. A command is a list, program first, and is run without a shell in the root \
         of the worktree, with `{{trial}}` (the run's own folder), `{{target}}` (where a build leaves its output), `{{root}}` \
         (this folder) and `{{profile}}` replaced; `{{features}}` becomes `--features cuda` where trials can use a GPU. What \
         decides a value (`[task]`, `[metric]`, `[build]`, `[preflight]`, `[fit]`, `[score]`, `[accept]`) is fixed for a tag \
         from its first keep on; everything else may change at any time.\n"
    );
    for section in sections() {
        let _ = write!(text, "\n## `[{}]`\n\n{}\n\n", section.name, section.about);
        text += "| key | value | default | |\n|---|---|---|---|\n";
        for key in &section.keys {
            let default = match (&key.default, key.required) {
                (Some(value), _) => format!("`{value}`"),
                (None, true) => "must be given".to_owned(),
                (None, false) => "none".to_owned(),
            };
            let about = key.about.replace('|', "\\|");
            let _ = writeln!(text, "| `{}` | {} | {default} | {about} |", key.name, key.shape);
        }
    }
    page("configuration", &text);
}

/// The oracle is the parser, which names the keys it knows where it meets another.
#[test]
fn the_keys_on_the_page_are_those_that_the_parser_knows() {
    let all = sections();
    let documented = |name: &str| -> BTreeSet<String> {
        let of = all.iter().find(|section| section.name == name);
        let keys = of.into_iter().flat_map(|section| section.keys.iter().map(|key| key.name.clone()));
        let below = all.iter().filter_map(|section| section.name.strip_prefix(name)?.strip_prefix('.'));
        keys.chain(below.map(str::to_owned)).collect()
    };
    for section in &all {
        let file = format!("[{}]\nzzz = 1\n{}", section.name, least(&section.name));
        assert_eq!(known(&file), documented(&section.name), "[{}]", section.name);
    }
    let top: BTreeSet<String> =
        all.iter().map(|section| section.name.split('.').next().unwrap().to_owned()).collect();
    assert_eq!(known(&format!("zzz = 1\n{}", least(""))), top);
}

#[test]
fn the_defaults_on_the_page_are_values_that_are_read() {
    for section in sections() {
        let set: String = section
            .keys
            .iter()
            .filter_map(|key| Some(format!("{} = {}\n", key.name, key.default.as_ref()?)))
            .collect();
        let given = match section.name.as_str() {
            "task" | "metric" | "score" => continue, // stand in the rest
            "proposer.llm" => "provider = \"ollama\"\nmodel = \"m\"\n",
            "proposer.agent" => "preset = \"claude\"\n",
            "prepare" | "build" | "preflight" | "fit" | "sample" => "command = [\"sh\"]\n",
            _ => "",
        };
        read(&format!("{}[{}]\n{given}{set}", least(""), section.name))
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

fn read(text: &str) -> Result<Task, String> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), text).unwrap();
    Task::read(dir.path()).map_err(|error| error.to_string())
}

/// The keys that the parser names where it meets `zzz`.
fn known(text: &str) -> BTreeSet<String> {
    let error = read(text).err().unwrap_or_else(|| panic!("{text} is read"));
    let (_, list) = error.split_once("unknown field `zzz`, expected").unwrap_or_else(|| panic!("{error}"));
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn sections() -> Vec<Section> {
    let types = Types::read();
    let mut all = Vec::new();
    let mut queue = vec![(String::new(), "Task".to_owned(), MODULE.to_owned(), String::new())];
    while !queue.is_empty() {
        let (name, of, module, about) = queue.remove(0);
        let found = types.find(&of, &module).unwrap();
        let Item::Struct(item) = found.item else { panic!("{of} is no table") };
        let Fields::Named(fields) = &item.fields else { panic!("{of} has no keys") };
        let source = &types.sources[found.module];
        let whole = serde(&item.attrs).default.is_some().then(|| defaults(source, &of)).flatten();
        let mut keys = Vec::new();
        let mut below = Vec::new();
        for field in &fields.named {
            let said = serde(&field.attrs);
            if said.skip {
                continue;
            }
            let key = field.ident.as_ref().unwrap().to_string();
            let mut table = None;
            let mut choice = None;
            let shape = types.shape(&field.ty, found.module, &mut |ty, module| {
                match types.find(ty, module).unwrap().item {
                    Item::Enum(item)
                        if item.variants.iter().all(|variant| matches!(variant.fields, Fields::Unit)) =>
                    {
                        let names: Vec<String> =
                            variants(item).into_iter().map(|(name, _)| format!("`\"{name}\"`")).collect();
                        choice = Some(item);
                        names.join(", ")
                    }
                    Item::Enum(_) => "text".to_owned(), // read by hand
                    _ => {
                        table = Some((ty.to_owned(), module.to_owned()));
                        String::new()
                    }
                }
            });
            let about = first(&doc(&field.attrs));
            assert!(!about.is_empty(), "[{name}] {key} has no doc comment");
            if let Some((ty, module)) = table {
                let name = if name.is_empty() { key } else { format!("{name}.{key}") };
                below.push((name, ty, module, about));
                continue;
            }
            let optional = shape.ends_with(" or null");
            let expr = match (&said.default, &whole) {
                (Some(Some(path)), _) => Some(function(source, path)),
                (Some(None), _) => None,
                (None, Some(values)) => values.get(&key).copied(),
                (None, None) => None,
            };
            let names = choice.map(variants).unwrap_or_default();
            let written = |expr: &Expr| toml(source, expr, choice, &names);
            let default = match expr {
                Some(expr) => written(expr),
                None if said.default.is_some() => Some(own_default(&field.ty, choice, &names)),
                None => None,
            };
            let required = default.is_none() && !optional && said.default.is_none() && whole.is_none();
            let shape = shape.trim_end_matches(" or null").to_owned();
            keys.push(Key { name: key, shape, default, required, about });
        }
        if !name.is_empty() {
            all.push(Section { name, about, keys });
        }
        // tables of a table right behind it
        queue.splice(0..0, below);
    }
    all
}

/// The fields of `impl Default for of`.
fn defaults<'a>(source: &'a Source, of: &str) -> Option<BTreeMap<String, &'a Expr>> {
    let block = source.parsed.items.iter().find_map(|item| match item {
        Item::Impl(block) if is(&block.self_ty, of) => {
            let (_, path, _) = block.trait_.as_ref()?;
            path.is_ident("Default").then_some(block)
        }
        _ => None,
    })?;
    let Some(ImplItem::Fn(item)) = block.items.first() else { panic!("{of} has no default") };
    let Some(Stmt::Expr(Expr::Struct(made), None)) = item.block.stmts.last() else {
        panic!("{of} is not made in one go")
    };
    let field = |value: &'a syn::FieldValue| match &value.member {
        syn::Member::Named(name) => (name.to_string(), &value.expr),
        syn::Member::Unnamed(_) => unreachable!("named fields have names"),
    };
    Some(made.fields.iter().map(field).collect())
}

/// What the function `Type::name` gives.
fn function<'a>(source: &'a Source, path: &str) -> &'a Expr {
    let (of, name) = path.split_once("::").unwrap();
    let items = source.parsed.items.iter().filter_map(|item| match item {
        Item::Impl(block) if is(&block.self_ty, of) => Some(&block.items),
        _ => None,
    });
    let body = items.flatten().find_map(|item| match item {
        ImplItem::Fn(item) if item.sig.ident == name => item.block.stmts.last(),
        _ => None,
    });
    let Some(Stmt::Expr(expr, None)) = body else { panic!("{path} is no plain value") };
    expr
}

fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.is_ident(name))
}

/// A value of Rust as one of TOML; `None` for none.
fn toml(
    source: &Source,
    expr: &Expr,
    choice: Option<&syn::ItemEnum>,
    names: &[(String, String)],
) -> Option<String> {
    let variant = |ident: &syn::Ident| {
        let at = choice?
            .variants
            .iter()
            .filter(|variant| !serde(&variant.attrs).skip)
            .position(|variant| variant.ident == *ident)?;
        Some(format!("\"{}\"", names[at].0))
    };
    Some(match expr {
        Expr::Path(path) if path.path.is_ident("None") => return None,
        Expr::Path(path) => {
            variant(&path.path.segments.last().unwrap().ident).unwrap_or_else(|| source.slice(expr))
        }
        Expr::Call(call) if source.slice(&call.func) == "Vec::new" => "[]".to_owned(),
        Expr::Call(call) if source.slice(&call.func) == "Time::constant" => {
            let parts: Vec<u8> =
                call.args.iter().take(2).map(|part| source.slice(part).parse().unwrap()).collect();
            format!("\"{:02}:{:02}\"", parts[0], parts[1])
        }
        Expr::Macro(list) if list.mac.path.is_ident("vec") => {
            let parts =
                list.mac.parse_body_with(Punctuated::<Expr, syn::Token![,]>::parse_terminated).unwrap();
            let parts: Vec<String> =
                parts.iter().filter_map(|part| toml(source, part, choice, names)).collect();
            format!("[{}]", parts.join(", "))
        }
        Expr::Lit(_) => source.slice(expr).replace('_', ""),
        _ => source.slice(expr),
    })
}

/// The default of a type itself.
fn own_default(ty: &Type, choice: Option<&syn::ItemEnum>, names: &[(String, String)]) -> String {
    if let Some(item) = choice {
        let marked =
            |variant: &syn::Variant| variant.attrs.iter().any(|attr| attr.path().is_ident("default"));
        return format!("\"{}\"", names[item.variants.iter().position(marked).unwrap()].0);
    }
    match ty {
        Type::Path(path) if path.path.is_ident("bool") => "false".to_owned(),
        Type::Path(path) if path.path.segments.last().unwrap().ident == "Vec" => "[]".to_owned(),
        _ => panic!("a type whose default is not known here"),
    }
}
