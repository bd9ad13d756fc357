//! Opening prepared data: only what the manifest says, and messages that name the remedy.

use prepare::cache::{Cache, CacheError, Paths};
use prepare::profile::Profile;

#[test]
fn missing_data_names_the_command_that_prepares_it() {
    let root = tempfile::tempdir().unwrap();
    let message = |p| Cache::open_at(root.path(), p).unwrap_err().to_string();
    assert!(message(Profile::Smoke).contains("`cargo run --release -p prepare -- --profile smoke`"));
    let full = message(Profile::Full);
    assert!(full.contains("`cargo run --release -p prepare -- --profile full`"), "{full}");
    assert!(full.contains("`cargo run --release -p prepare -- --profile laptop`"), "{full}");
    assert!(full.contains(root.path().join("full").to_str().unwrap()), "{full}");
}

#[test]
fn a_manifest_that_cannot_be_understood_is_stale() {
    let root = tempfile::tempdir().unwrap();
    let paths = Paths::new(root.path(), Profile::Smoke);
    std::fs::create_dir_all(paths.dir()).unwrap();
    std::fs::write(paths.manifest(), r#"{"profile": "smoke"}"#).unwrap();
    assert!(matches!(Cache::open_at(root.path(), Profile::Smoke), Err(CacheError::Stale { .. })));
}

#[cfg(feature = "data")]
mod prepared_data {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::prepared::{smoke, smoke_copy};
    use prepare::profile::BOS;
    use prepare::rows::Split;

    fn damaged(root: &Path) -> String {
        match Cache::open_at(root, Profile::Smoke) {
            Err(e @ CacheError::Damaged { .. }) => e.to_string(),
            other => panic!("expected damage, got {other:?}"),
        }
    }

    #[test]
    fn every_changed_byte_is_found() {
        let root = smoke_copy();
        for entry in &smoke().manifest().files {
            let path = root.path().join("smoke").join(&entry.path);
            let good = fs::read(&path).unwrap();
            let mut bad = good.clone();
            bad[good.len() / 2] ^= 1;
            fs::write(&path, &bad).unwrap();
            let message = damaged(root.path());
            assert!(message.contains(&entry.path) && message.contains("SHA-256"), "{message}");
            assert!(message.contains("--profile smoke"), "{message}");
            fs::write(&path, good).unwrap();
        }
        Cache::open_at(root.path(), Profile::Smoke).unwrap();
    }

    #[test]
    fn truncated_and_missing_files_are_found() {
        let root = smoke_copy();
        let tokens = root.path().join("smoke/train/tokens.u16");
        fs::OpenOptions::new().write(true).open(&tokens).unwrap().set_len(1000).unwrap();
        assert!(damaged(root.path()).contains("1000 bytes, the manifest says"));
        fs::remove_file(tokens).unwrap();
        assert!(damaged(root.path()).contains("missing"));
    }

    #[test]
    fn another_recipe_is_stale() {
        let root = smoke_copy();
        let paths = Paths::new(root.path(), Profile::Smoke);
        let manifest = fs::read_to_string(paths.manifest()).unwrap();
        let other = manifest.replace("\"data_version\": 1", "\"data_version\": 0");
        assert_ne!(other, manifest);
        fs::write(paths.manifest(), other).unwrap();
        assert!(matches!(Cache::open_at(root.path(), Profile::Smoke), Err(CacheError::Stale { .. })));
    }

    #[test]
    fn a_fit_needs_no_exam_files() {
        let root = smoke_copy();
        fs::remove_dir_all(root.path().join("smoke/exam")).unwrap();
        fs::remove_file(root.path().join("smoke/tokenizer.json")).unwrap();
        let cache = Cache::open_train_at(root.path(), Profile::Smoke).unwrap();
        assert!(cache.train_tokens().unwrap().tokens().len() > 2_000_000);
        assert!(Cache::open_at(root.path(), Profile::Smoke).is_err());
    }

    #[test]
    fn training_documents_each_start_with_bos() {
        let file = smoke().train_tokens().unwrap();
        let (tokens, docs) = (file.tokens(), file.docs());
        assert_eq!(docs[0], 0);
        assert!(docs.windows(2).all(|w| w[0] < w[1] && tokens[w[0] as usize] == BOS));
        assert_eq!(tokens.iter().filter(|&&id| id == BOS).count(), docs.len() - 1, "and nothing else is BOS");
    }

    #[test]
    fn exams_differ_and_have_the_rows_the_manifest_counts() {
        let cache = smoke();
        let [val, audit] = Split::ALL.map(|split| cache.exam_rows(split).unwrap());
        assert_eq!((val.len(), val.context()), (64, 128));
        assert_eq!(val.len() as u64, cache.manifest().val.rows);
        assert_eq!(audit.len() as u64, cache.manifest().audit.rows);
        assert_ne!(val, audit);
    }

    #[test]
    fn the_fingerprint_names_the_data() {
        let mut manifest = smoke().manifest().clone();
        let fingerprint = manifest.fingerprint();
        assert_eq!(fingerprint.len(), 64);
        manifest.files[0].sha256.replace_range(0..1, "x");
        assert_ne!(manifest.fingerprint(), fingerprint);
    }
}
