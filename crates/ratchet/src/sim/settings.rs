//! The settings of a simulated training run, as `settings.toml` holds them.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    plain_file,
};

/// The file's name, in the task's root.
pub const FILE: &str = "settings.toml";
/// The file as the task begins: names, values and ranges of the contest's own knobs.
pub const START: &str = include_str!("../../../../examples/sim/settings.toml");

/// Knobs of a training run; names, start values and ranges are those of the `train` crate at profile `full`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE", deny_unknown_fields)]
pub struct Settings {
    /// Tokens between two updates.
    pub step_tokens: f64,
    /// Rows of one forward and backward pass.
    pub micro_rows: f64,
    /// Layers.
    pub depth: f64,
    /// Width over depth.
    pub aspect: f64,
    /// Window of three layers in four, as a share of the context.
    pub short_window: f64,
    /// Logits are capped softly here.
    pub logit_cap: f64,
    /// Learning rate of matrices.
    pub matrix_lr: f64,
    /// Learning rate of the token embedding.
    pub embed_lr: f64,
    /// Learning rate of the head.
    pub head_lr: f64,
    /// Weight decay of matrices.
    pub matrix_decay: f64,
    /// Decay of Adam's second moment.
    pub beta2: f64,
    /// Share of the budget over which learning rates rise.
    pub warmup: f64,
    /// Share of the budget at its end over which they fall.
    pub warmdown: f64,
    /// Where they end, as a share.
    pub final_lr: f64,
}

impl Settings {
    /// Reads `settings.toml` in `root`. Fails on a value that no training run could have.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(FILE);
        let text = plain_file::read_to_string(&path)
            .map_err(|error| Error::usage("no settings").at(&path).because(error))?;
        Self::parse(&text).map_err(|problem| Error::usage(problem).at(&path))
    }

    /// Reads the text of a `settings.toml`; the error is one line.
    pub fn parse(text: &str) -> Result<Self, String> {
        let settings: Self =
            toml::from_str(text).map_err(|error| error.to_string().trim().replace('\n', " "))?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), String> {
        let shares = [("WARMUP", self.warmup), ("WARMDOWN", self.warmdown), ("FINAL_LR", self.final_lr)];
        let positive = [
            ("STEP_TOKENS", self.step_tokens),
            ("MICRO_ROWS", self.micro_rows),
            ("DEPTH", self.depth),
            ("ASPECT", self.aspect),
            ("SHORT_WINDOW", self.short_window),
            ("LOGIT_CAP", self.logit_cap),
            ("MATRIX_LR", self.matrix_lr),
            ("EMBED_LR", self.embed_lr),
            ("HEAD_LR", self.head_lr),
            ("MATRIX_DECAY", self.matrix_decay),
        ];
        let wrong = |(name, value): &(&str, f64), wanted: &str| {
            Err(format!("{name} is {value}; it must be {wanted}"))
        };
        if let Some(bad) = positive.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            return wrong(bad, "above 0");
        }
        if let Some(bad) = shares.iter().find(|(_, value)| !(0.0..=1.0).contains(value)) {
            return wrong(bad, "from 0 to 1");
        }
        match self.beta2 > 0.0 && self.beta2 < 1.0 {
            true => Ok(()),
            false => wrong(&("BETA2", self.beta2), "between 0 and 1"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn knobs_are_those_of_the_contest() {
        // Oracle: the sources of the train crate.
        let train = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../train/src");
        let source: String = ["main.rs", "model.rs", "optim.rs"]
            .map(|file| fs::read_to_string(train.join(file)).unwrap())
            .concat();
        for line in START.lines() {
            let (name, rest) = line.split_once(" = ").unwrap();
            let (value, marker) = rest.split_once("# knob: ").unwrap();
            let range = marker.split(';').next().unwrap();
            let wanted = source.lines().find(|line| line.contains(&format!("const {name}:"))).expect(name);
            let (code, wanted) = wanted.split_once("// knob: ").unwrap();
            assert_eq!(range, wanted.split(';').next().unwrap(), "{name}");
            let start = code.split_once("full: ").or(code.split_once("= ")).unwrap().1;
            let start = start.split([',', ';']).next().unwrap();
            assert_eq!(value.trim(), start, "{name}");
        }
    }

    #[test]
    fn what_no_run_could_have_is_refused_by_name() {
        let with = |name: &str, value: &str| {
            let line = START.lines().find(|line| line.starts_with(name)).unwrap();
            Settings::parse(&START.replace(line, &format!("{name} = {value}")))
        };
        assert_eq!(with("DEPTH", "9").unwrap().depth, 9.0);
        for (name, value) in [
            ("MATRIX_LR", "0.0"),
            ("DEPTH", "nan"),
            ("STEP_TOKENS", "inf"),
            ("WARMUP", "-0.1"),
            ("BETA2", "1.0"),
        ] {
            let problem = with(name, value).unwrap_err();
            assert!(problem.starts_with(name) && !problem.contains('\n'), "{problem}");
        }
        assert!(Settings::parse(&format!("{START}OTHER = 1\n")).is_err());
        assert!(Settings::parse("DEPTH = 8\n").is_err());
    }
}
