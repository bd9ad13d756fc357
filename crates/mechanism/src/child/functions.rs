//! What scripts have beside the language: statistics, reproducible chance, and steps on a knob's scale.

use rhai::{Array, Dynamic, Engine, EvalAltResult, FLOAT, INT, Map};

use crate::view::Knob;

/// One function of the host.
pub(crate) struct Function {
    /// As the page shows it, without its arguments.
    pub(crate) name: &'static str,
    register: fn(&mut Engine, &str),
}

type Failed = Box<EvalAltResult>;

/// All of them. The page names the same, and a test holds it to that.
pub(crate) const FUNCTIONS: [Function; 9] = [
    Function { name: "mean", register: |engine, name| _ = engine.register_fn(name, mean) },
    Function { name: "median", register: |engine, name| _ = engine.register_fn(name, median) },
    Function { name: "sd", register: |engine, name| _ = engine.register_fn(name, sd) },
    Function { name: "quantile", register: |engine, name| _ = engine.register_fn(name, quantile) },
    Function { name: "uniform", register: |engine, name| _ = engine.register_fn(name, uniform) },
    Function { name: "normal", register: |engine, name| _ = engine.register_fn(name, normal) },
    Function { name: "join", register: |engine, name| _ = engine.register_fn(name, join) },
    Function { name: "step", register: |engine, name| _ = engine.register_fn(name, step) },
    Function { name: "value_at", register: |engine, name| _ = engine.register_fn(name, value_at) },
];

pub(super) fn register(engine: &mut Engine) {
    for Function { name, register } in FUNCTIONS {
        register(engine, name);
    }
}

/// The numbers of an array; `()` is left out, as a crash has no gain.
fn numbers(values: Array) -> Result<Vec<f64>, Failed> {
    let number = |value: Dynamic| match (value.as_float(), value.as_int()) {
        (Ok(number), _) => Ok(number),
        (_, Ok(whole)) => Ok(whole as f64),
        _ => Err(format!("numbers are needed, not a {}", value.type_name()).into()),
    };
    values.into_iter().filter(|value| !value.is_unit()).map(number).collect()
}

fn or_unit(number: Option<f64>) -> Dynamic {
    number.map_or(Dynamic::UNIT, Dynamic::from_float)
}

fn mean(values: Array) -> Result<Dynamic, Failed> {
    let values = numbers(values)?;
    Ok(or_unit((!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)))
}

fn median(values: Array) -> Result<Dynamic, Failed> {
    quantile(values, Dynamic::from_float(0.5))
}

/// Of a sample: divided by n − 1.
fn sd(values: Array) -> Result<Dynamic, Failed> {
    let values = numbers(values)?;
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    Ok(or_unit((n >= 2.0).then(|| (squares / (n - 1.0)).sqrt())))
}

/// Between the order statistics, as NumPy's default.
fn quantile(values: Array, share: Dynamic) -> Result<Dynamic, Failed> {
    let share = share.as_float().or(share.as_int().map(|whole| whole as f64)).ok();
    let Some(share) = share.filter(|share| (0.0..=1.0).contains(share)) else {
        return Err("a quantile is a number from 0 to 1".into());
    };
    let mut values = numbers(values)?;
    values.sort_by(f64::total_cmp);
    let place = share * values.len().saturating_sub(1) as f64;
    let (below, above) = (place.floor() as usize, place.ceil() as usize);
    Ok(or_unit(values.get(above).map(|high| values[below] + (high - values[below]) * place.fract())))
}

/// From 0 up to but not 1, the same for the same seed and label.
fn uniform(seed: INT, label: Dynamic) -> FLOAT {
    (bits(seed, &label.to_string()) >> 11) as f64 / (1u64 << 53) as f64
}

/// Mean 0, standard deviation 1; Box and Muller's way.
fn normal(seed: INT, label: Dynamic) -> FLOAT {
    let one = uniform(seed, format!("{label} radius").into());
    let two = uniform(seed, format!("{label} angle").into());
    (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos()
}

/// FNV-1a over the label, then SplitMix64's last steps.
fn bits(seed: INT, label: &str) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed.cast_unsigned().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in label.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

/// The values as texts, with something between them.
fn join(values: Array, between: &str) -> String {
    values.iter().map(Dynamic::to_string).collect::<Vec<_>>().join(between)
}

/// The place `by` further in a knob's range, at least at the next value that differs; `()` where there is none.
fn step(knob: Map, by: Dynamic) -> Result<Dynamic, Failed> {
    let knob = knob_of(knob)?;
    let by = by.as_float().or(by.as_int().map(|whole| whole as f64)).unwrap_or(f64::NAN);
    if !by.is_finite() || by == 0.0 {
        return Err("a step is a number, and not 0".into());
    }
    Ok(or_unit(knob.step(by)))
}

/// What a knob's value is at a place from 0 to 1.
fn value_at(knob: Map, at: Dynamic) -> Result<Dynamic, Failed> {
    let knob = knob_of(knob)?;
    let at = at.as_float().or(at.as_int().map(|whole| whole as f64)).unwrap_or(f64::NAN);
    if !(0.0..=1.0).contains(&at) {
        return Err("a place is a number from 0 to 1".into());
    }
    Ok(or_unit(knob.value_at(at)))
}

fn knob_of(knob: Map) -> Result<Knob, Failed> {
    let knob = super::value::to_json(knob.into(), 4).map_err(|fault| fault.message)?;
    serde_json::from_value(knob).map_err(|error| format!("this is no knob: {error}").into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn eval(script: &str) -> Dynamic {
        let mut engine = Engine::new();
        register(&mut engine);
        engine.eval(script).unwrap_or_else(|error| panic!("{error}: {script}"))
    }

    fn number(script: &str) -> f64 {
        eval(script).as_float().unwrap_or_else(|kind| panic!("{kind}: {script}"))
    }

    #[test]
    fn the_page_names_these_functions_and_no_others() {
        let section =
            crate::PAGE.split_once("Functions of the host:").unwrap().1.split("\n## ").next().unwrap();
        let named = section
            .lines()
            .filter_map(|line| line.strip_prefix("| `")?.split_once('(').map(|(name, _)| name));
        assert_eq!(named.collect::<BTreeSet<_>>(), FUNCTIONS.iter().map(|function| function.name).collect());
    }

    #[test]
    fn statistics_are_those_of_numpy() {
        // Oracle: numpy.quantile, numpy.std(ddof=1), numpy.mean, numpy.median of the same numbers.
        for (script, value) in [
            ("mean([2, 4, 4, 4, 5, 5, 7, 9])", 5.0),
            ("sd([2, 4, 4, 4, 5, 5, 7, 9])", 2.138_089_935_299_395),
            ("median([3.0, 1, 2])", 2.0),
            ("median([4, 1, 3, 2])", 2.5),
            ("quantile([1, 2, 3, 4], 0.25)", 1.75),
            ("quantile([1, 2, 3, 4], 1)", 4.0),
            ("quantile([7], 0.3)", 7.0),
            ("mean([1.0, (), 3.0])", 2.0),
        ] {
            assert!((number(script) - value).abs() < 1e-12, "{script}: {}", number(script));
        }
        for script in ["mean([])", "median([()])", "sd([1])", "quantile([], 0.5)"] {
            assert!(eval(script).is_unit(), "{script}");
        }
    }

    #[test]
    fn chance_is_the_same_for_the_same_seed_and_label_and_has_its_moments() {
        assert_eq!(number("uniform(7, \"a\")"), number("uniform(7, `${\"a\"}`)"));
        assert_ne!(number("uniform(7, \"a\")"), number("uniform(8, \"a\")"));
        assert_ne!(number("uniform(7, \"a\")"), number("uniform(7, \"b\")"));
        let n = 20_000;
        let moments = |values: Vec<f64>| {
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            (mean, values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64)
        };
        // for consecutive seeds, and for consecutive labels: both are how scripts use it
        for seeds in [true, false] {
            let label = |i: i64| if seeds { (i, Dynamic::from("x")) } else { (3, Dynamic::from(i)) };
            let flat: Vec<f64> = (0..n).map(|i| uniform(label(i).0, label(i).1)).collect();
            assert!(flat.iter().all(|value| (0.0..1.0).contains(value)));
            let (mean, variance) = moments(flat);
            assert!((mean - 0.5).abs() < 0.01 && (variance - 1.0 / 12.0).abs() < 0.003, "{mean} {variance}");
            let (mean, variance) = moments((0..n).map(|i| normal(label(i).0, label(i).1)).collect());
            assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        }
    }

    #[test]
    fn a_step_leads_to_the_next_value_and_not_beyond_the_range() {
        let knob = |kind: &str, value: &str, at: f64, low: f64, high: f64| {
            format!(
                "#{{ name: \"K\", kind: \"{kind}\", value: {value}, at: {at:?}, low: {low:?}, high: {high:?} }}"
            )
        };
        let pow2 = knob("pow2", "64", 0.5, 16.0, 256.0);
        let int = knob("int", "8", 1.0, 2.0, 8.0);
        let log = knob("log", "0.02", 0.5, 0.002, 0.2);
        for (script, value) in [
            (format!("step({pow2}, 0.01)"), 0.75),
            (format!("step({pow2}, -9)"), 0.0),
            (format!("value_at({pow2}, 0.75)"), 128.0),
            (format!("value_at({pow2}, 0.7)"), 128.0),
            (format!("value_at({int}, 0.5)"), 5.0),
            (format!("value_at({log}, 1)"), 0.2),
            (format!("value_at({log}, 0.25)"), 0.02 / 10f64.sqrt()),
            (format!("step({log}, 0.2)"), 0.7),
            (format!("step({log}, 0.001)"), 0.505),
        ] {
            assert!((number(&script) - value).abs() < 1e-12, "{script}: {}", number(&script));
        }
        let choice = "#{ name: \"K\", kind: \"choice\", value: \"a\", choices: [\"a\", \"b\"] }";
        for script in
            [format!("step({int}, 0.2)"), format!("step({choice}, 0.2)"), format!("value_at({choice}, 0.2)")]
        {
            assert!(eval(&script).is_unit(), "{script}");
        }
    }
}
