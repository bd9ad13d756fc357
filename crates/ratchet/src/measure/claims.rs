//! What a fit says of itself, held against what the driver knows.

use std::time::Duration;

use prepare::profile::Profile;

use crate::figures::FitFigures;

/// By how much a fit may pass its budget.
pub(super) fn grace(budget: Duration) -> Duration {
    (budget / 20).max(Duration::from_secs(2))
}

/// Refuses a fit that spent more than its budget, whatever it did meanwhile: a twentieth more time is worth more
/// than many a keep. What is forgiven is a last step that took longer than any before it.
pub(super) fn in_time(fit: Option<&FitFigures>, budget: Duration) -> Result<(), String> {
    let forgiven = (budget / 100).max(Duration::from_secs(1));
    match fit.and_then(|fit| fit.training_seconds) {
        Some(seconds) if seconds > (budget + forgiven).as_secs_f64() => Err(format!(
            "fit trained {seconds:.1} s of a budget of {} s, {:.0} s more are forgiven: stop when trial.done()",
            budget.as_secs(),
            forgiven.as_secs_f64()
        )),
        _ => Ok(()),
    }
}

/// Holds `fit.json` against what the driver knows.
pub(super) fn believable(
    fit: Option<&FitFigures>,
    profile: Profile,
    budget: Duration,
    seed: u64,
    wall: Duration,
) -> Result<(), String> {
    let Some(fit) = fit else { return Err("fit left no fit.json".into()) };
    if fit.profile.as_deref() != Some(profile.name()) {
        return Err(format!("fit.json is of profile {:?}, not {profile}", fit.profile));
    }
    if fit.seed != Some(seed) {
        return Err(format!("fit.json is of seed {:?}, not {seed}", fit.seed));
    }
    // a referee that knows of no other budget says none, and has kept to the profile's
    let kept_to = fit.budget_s.unwrap_or(profile.spec().budget.as_secs_f64());
    if kept_to != budget.as_secs_f64() {
        return Err(format!("fit.json is of a budget of {kept_to} s, not {} s", budget.as_secs_f64()));
    }
    let most = (budget + grace(budget)).min(wall).as_secs_f64();
    match fit.training_seconds {
        Some(seconds) if seconds > 0.0 && seconds <= most => {}
        other => {
            return Err(format!(
                "fit.json claims {other:?} seconds of training; at most {most:.1} were possible"
            ));
        }
    }
    match fit.final_loss {
        Some(loss) if loss.is_finite() => Ok(()),
        other => Err(format!("fit.json claims a final loss of {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_that_cannot_be_true_are_not_believed() {
        const BUDGET: Duration = Duration::from_secs(3); // of the profile smoke
        let wall = Duration::from_secs(5);
        let good = FitFigures {
            profile: Some("smoke".into()),
            seed: Some(7),
            training_seconds: Some(3.1),
            final_loss: Some(5.0),
            ..Default::default()
        };
        let believed = |fit: &FitFigures| believable(Some(fit), Profile::Smoke, BUDGET, 7, wall).is_ok();
        assert!(believed(&good));
        assert!(believable(None, Profile::Smoke, BUDGET, 7, wall).is_err());
        let with = |change: fn(&mut FitFigures)| {
            let mut fit = good.clone();
            change(&mut fit);
            fit
        };
        assert!(!believed(&with(|fit| fit.seed = Some(8))));
        assert!(!believed(&with(|fit| fit.profile = Some("laptop".into()))));
        assert!(!believed(&with(|fit| fit.training_seconds = Some(5.01))), "budget 3 s and grace 2 s");
        assert!(!believed(&with(|fit| fit.training_seconds = Some(f64::NAN))));
        assert!(!believed(&with(|fit| fit.final_loss = Some(f64::NAN))));
        assert!(!believed(&with(|fit| fit.final_loss = None)));
        assert!(in_time(Some(&good), BUDGET).is_ok());
        assert!(in_time(Some(&with(|fit| fit.training_seconds = Some(4.5))), BUDGET).is_err());
        let brief = Duration::from_secs(1);
        assert!(
            believable(Some(&good), Profile::Smoke, BUDGET, 7, brief).is_err(),
            "longer than the process lived"
        );
        let longer = Duration::from_secs(60);
        let long = Duration::from_secs(70);
        assert!(believable(Some(&good), Profile::Smoke, longer, 7, long).is_err(), "of another budget");
        let asked = FitFigures { budget_s: Some(60.0), training_seconds: Some(59.0), ..good };
        assert!(believable(Some(&asked), Profile::Smoke, longer, 7, long).is_ok());
    }
}
