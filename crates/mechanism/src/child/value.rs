//! JSON as the script's values, and back.

use rhai::{Array, Dynamic, INT, ImmutableString, Map};
use serde_json::{Number, Value};

use crate::fault::{Fault, FaultKind};

/// A script's value of a JSON one; null is `()`. Whole numbers stay whole; one above `i64` wraps, and only a seed
/// is so large.
pub(super) fn to_script(value: Value) -> Dynamic {
    match value {
        Value::Null => Dynamic::UNIT,
        Value::Bool(flag) => flag.into(),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => whole.into(),
            (None, Some(whole)) => whole.cast_signed().into(),
            (None, None) => number.as_f64().unwrap_or_default().into(),
        },
        Value::String(text) => text.into(),
        Value::Array(values) => values.into_iter().map(to_script).collect::<Array>().into(),
        Value::Object(fields) => {
            let fields = fields.into_iter().map(|(name, value)| (name.as_str().into(), to_script(value)));
            fields.collect::<Map>().into()
        }
    }
}

/// The JSON value of a script's. `depth`: how many values may lie inside each other.
///
/// Errors: a number that is not finite, something that JSON has not, too deep.
pub(super) fn to_json(value: Dynamic, depth: usize) -> Result<Value, Fault> {
    let Some(depth) = depth.checked_sub(1) else {
        return Err(Fault::new(FaultKind::Depth, "values lie too deep inside each other"));
    };
    let value = value.flatten();
    if let Ok(whole) = value.as_int() {
        return Ok(INT::into(whole));
    }
    if let Ok(number) = value.as_float() {
        let number = Number::from_f64(number);
        return number
            .map(Value::Number)
            .ok_or_else(|| Fault::new(FaultKind::Type, "a number is not finite"));
    }
    if let Ok(flag) = value.as_bool() {
        return Ok(Value::Bool(flag));
    }
    if let Ok(letter) = value.as_char() {
        return Ok(Value::String(letter.into()));
    }
    if value.is_unit() {
        return Ok(Value::Null);
    }
    if value.is_string() {
        return Ok(Value::String(value.cast::<ImmutableString>().into()));
    }
    if value.is_array() {
        let values = value.cast::<Array>().into_iter().map(|value| to_json(value, depth));
        return values.collect::<Result<_, _>>().map(Value::Array);
    }
    if value.is_map() {
        let fields = value.cast::<Map>().into_iter();
        let fields = fields.map(|(name, value)| Ok((name.to_string(), to_json(value, depth)?)));
        return fields.collect::<Result<_, _>>().map(Value::Object);
    }
    Err(Fault::new(FaultKind::Type, format!("a {} is no value to hand over", value.type_name())))
}
