//! Constants of the profiles against the table in the design, and the choice of a profile.

use std::time::Duration;

use prepare::profile::{self, Profile, UnknownProfile};

#[test]
fn constants_are_those_of_the_design() {
    let row = |p: Profile| {
        let s = p.spec();
        (s.context, s.vocab, s.budget, s.val_tokens, s.audit_tokens, s.pieces)
    };
    let seconds = Duration::from_secs;
    assert_eq!(row(Profile::Full), (2048, 8192, seconds(300), 20_971_520, 20_971_520, false));
    assert_eq!(row(Profile::Laptop), (256, 8192, seconds(60), 131_072, 131_072, true));
    assert_eq!(row(Profile::Smoke), (128, 8192, seconds(3), 8_192, 8_192, true));
    let shards = |p: Profile| (p.spec().train_shards.len(), p.spec().val_shard, p.spec().audit_shard);
    assert_eq!(shards(Profile::Full), (10, 6542, 6541));
    assert_eq!(shards(Profile::Laptop), (2, 2, 3));
    assert_eq!(profile::BOS, 8188);
}

#[test]
fn exams_are_a_whole_number_of_rows() {
    for spec in Profile::ALL.map(Profile::spec) {
        assert_eq!((spec.val_tokens % spec.context, spec.audit_tokens % spec.context), (0, 0));
    }
    assert_eq!(Profile::Full.spec().val_tokens / 2048, 10_240);
}

#[test]
fn no_exam_shard_is_trained_on() {
    for spec in Profile::ALL.map(Profile::spec) {
        assert_ne!(spec.val_shard, spec.audit_shard);
        assert!(
            !spec.train_shards.contains(&spec.val_shard) && !spec.train_shards.contains(&spec.audit_shard)
        );
    }
}

#[test]
fn names_read_back_in_text_and_json() {
    for p in Profile::ALL {
        assert_eq!(p.to_string().parse(), Ok(p));
        assert_eq!(serde_json::to_value(p).unwrap(), serde_json::json!(p.name()));
    }
    assert_eq!("Full".parse::<Profile>(), Err(UnknownProfile("Full".into())));
    let message = UnknownProfile("tiny".into()).to_string();
    assert_eq!(message, "`tiny` is no profile; there are full, laptop and smoke");
}

#[test]
fn full_is_the_default_only_where_device_and_data_are_ready() {
    let chosen = |requested, cuda, data| Profile::choose(requested, cuda, data).profile;
    assert_eq!(chosen(None, true, true), Profile::Full);
    assert_eq!(chosen(None, true, false), Profile::Laptop);
    assert_eq!(chosen(None, false, true), Profile::Laptop);
    assert_eq!(chosen(Some(Profile::Smoke), true, true), Profile::Smoke);
    assert_eq!(chosen(Some(Profile::Full), false, false), Profile::Full, "a wish is not second-guessed");
}
