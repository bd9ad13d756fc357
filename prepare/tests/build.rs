//! Whole preparations: golden data, idempotence, and every way to be interrupted.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prepare::build::{self, BuildError, Options, Prepared};
use prepare::cache::{Cache, Paths};
use prepare::fetch::Patience;
use prepare::profile::{BOS, Profile};
use prepare::progress::Silent;
use prepare::rows::Split;
use prepare::tokenizer::Tokenizer;

use crate::prepared::{documents, shard, smoke, smoke_copy};
use crate::server::{ETAG, Reply, Server};

fn prepare_in(root: &Path) -> Prepared {
    let options = Options { root: Some(root.to_owned()), ..Options::default() };
    build::prepare(Profile::Smoke, &options, &Silent).unwrap()
}

#[test]
fn golden_manifest() {
    // when this changes, old caches are wrong: raise DATA_VERSION in src/profile.rs
    insta::assert_snapshot!(smoke().manifest().to_json());
}

#[test]
fn golden_first_rows() {
    let cache = smoke();
    let tokenizer = Tokenizer::read(&cache.paths().tokenizer()).unwrap();
    let start = |split| cache.exam_rows(split).unwrap().row(0)[..24].to_vec();
    let val = start(Split::Val);
    assert_eq!(val[..8], [8188, 829, 65, 6102, 220, 18, 336, 16]);
    let text = "Hebrews 3\n\n1 Wherefore, holy brethren, partakers of the heavenly calling, consider the\nA";
    assert_eq!(tokenizer.decode(&val), text.as_bytes());
    let audit = start(Split::Audit);
    assert_eq!(audit[..8], [8188, 1504, 2392, 11, 424, 6041, 340, 2182]);
    let text =
        "She says, her subjects with foul insurrection\nHave batter'd down her consecrated wall,\nAnd by";
    assert_eq!(tokenizer.decode(&audit), text.as_bytes());
}

#[test]
fn training_files_hold_the_shards_texts() {
    let cache = smoke();
    let tokenizer = Tokenizer::read(&cache.paths().tokenizer()).unwrap();
    let file = cache.train_tokens().unwrap();
    let texts: Vec<String> = documents(0).into_iter().chain(documents(1)).collect();
    assert_eq!(file.docs().len(), texts.len() + 1);
    for (text, ends) in texts.iter().zip(file.docs().windows(2)) {
        let ids = &file.tokens()[ends[0] as usize..ends[1] as usize];
        assert_eq!(ids[0], BOS);
        assert_eq!(tokenizer.decode(&ids[1..]), text.as_bytes());
    }
}

#[test]
fn exam_rows_are_runs_of_the_exam_shards_documents() {
    let cache = smoke();
    let tokenizer = Tokenizer::read(&cache.paths().tokenizer()).unwrap();
    for (split, number) in [(Split::Val, 2), (Split::Audit, 3)] {
        let texts = documents(number);
        for row in cache.exam_rows(split).unwrap().iter() {
            for piece in row.split(|&id| id == BOS).skip(1) {
                let bytes = tokenizer.decode(piece);
                // the ends of a piece may lie inside a character: compare bytes
                let found = |text: &String| {
                    bytes.is_empty() || text.as_bytes().windows(bytes.len()).any(|window| window == bytes)
                };
                assert!(texts.iter().any(found), "{:?}", String::from_utf8_lossy(&bytes));
            }
        }
    }
}

#[test]
fn a_second_preparation_changes_nothing() {
    let root = smoke_copy();
    let manifest = Paths::new(root.path(), Profile::Smoke).manifest();
    let before = fs::metadata(&manifest).unwrap().modified().unwrap();
    assert!(!prepare_in(root.path()).fresh);
    assert_eq!(fs::metadata(&manifest).unwrap().modified().unwrap(), before);
}

#[test]
fn damaged_or_stale_data_is_prepared_again() {
    let root = smoke_copy();
    let paths = Paths::new(root.path(), Profile::Smoke);
    fs::write(paths.exam().join("val.u16"), [0; 258]).unwrap();
    let manifest = fs::read_to_string(paths.manifest()).unwrap();
    fs::write(paths.manifest(), manifest.replace("\"context\": 128", "\"context\": 64")).unwrap();
    let Prepared { cache, fresh } = prepare_in(root.path());
    assert!(fresh);
    assert_eq!(cache.manifest(), smoke().manifest());
}

#[test]
fn whatever_a_killed_preparation_left_is_no_obstacle() {
    // killed while files were exchanged: no manifest, a full staging directory, only some files in place
    let root = smoke_copy();
    let paths = Paths::new(root.path(), Profile::Smoke);
    fs::remove_file(paths.manifest()).unwrap();
    fs::create_dir_all(paths.dir().join("staging/train")).unwrap();
    fs::rename(paths.train().join("docs.u64"), paths.dir().join("staging/train/docs.u64")).unwrap();
    fs::write(paths.dir().join("staging/manifest.json"), "{").unwrap();
    assert!(Cache::open_at(root.path(), Profile::Smoke).is_err(), "half-exchanged data is not opened");
    let Prepared { cache, fresh } = prepare_in(root.path());
    assert!(fresh);
    assert_eq!(cache.manifest(), smoke().manifest());
    assert!(!paths.dir().join("staging").exists());
}

#[test]
fn two_preparations_at_once_make_the_data_once() {
    let root = tempfile::tempdir().unwrap();
    let fresh: Vec<bool> = std::thread::scope(|scope| {
        let both: Vec<_> = (0..2).map(|_| scope.spawn(|| prepare_in(root.path()).fresh)).collect();
        both.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(fresh.iter().filter(|&&f| f).count(), 1, "one works, the other waits and finds it done");
}

/// Serves the bundled shards under the names that `full` asks for, all but `missing`.
fn hub(missing: Option<&'static str>) -> Server {
    let file = |n| Arc::new(fs::read(shard(n)).unwrap());
    let (train, val, audit) = (file(0), file(2), file(3));
    Server::start(move |r, _| {
        let name = r.path.rsplit('/').next().unwrap();
        match name {
            _ if missing == Some(name) => Reply::Status(404, String::new()),
            "shard_00000.parquet" => Reply::File(train.clone(), ETAG),
            "shard_06542.parquet" => Reply::File(val.clone(), ETAG),
            "shard_06541.parquet" => Reply::File(audit.clone(), ETAG),
            _ => Reply::Status(404, String::new()),
        }
    })
}

fn full(root: &Path, hub: &Server) -> Result<Prepared, BuildError> {
    let options = Options {
        root: Some(root.to_owned()),
        shards: Some(1),
        workers: 3,
        base_urls: vec![hub.url()],
        patience: Patience { backoff: Duration::from_millis(1), ..Patience::default() },
    };
    build::prepare(Profile::Full, &options, &Silent)
}

#[test]
fn full_is_prepared_from_a_mirror_and_counts_what_there_is() {
    let (root, hub) = (tempfile::tempdir().unwrap(), hub(None));
    let Prepared { cache, fresh } = full(root.path(), &hub).unwrap();
    assert!(fresh);
    let m = cache.manifest();
    assert_eq!((m.train.len(), m.val_source.shard, m.audit_source.shard), (1, 6542, 6541));
    let rows = cache.exam_rows(Split::Val).unwrap();
    assert_eq!((rows.context(), rows.len() as u64), (2048, m.val.rows));
    // the shard is far smaller than the exam: all of it is used but what was cropped or filled no row
    assert_eq!(m.val.tokens, m.val.rows * 2048);
    let used = m.val.rows * 2049 + m.val.cropped;
    assert!(used <= m.val_source.tokens && m.val_source.tokens < used + 2049, "{m:?}");
    assert!(!full(root.path(), &hub).unwrap().fresh);
    assert_eq!(hub.requests().len(), 3);
}

#[test]
fn full_without_one_shard_is_not_prepared_and_resumes() {
    let root = tempfile::tempdir().unwrap();
    let error = full(root.path(), &hub(Some("shard_06542.parquet"))).unwrap_err();
    assert!(error.is_environment());
    assert!(error.to_string().contains("shard_06542.parquet"), "{error}");
    assert!(Cache::open_at(root.path(), Profile::Full).is_err(), "no val, no data");
    let complete = hub(None);
    assert!(full(root.path(), &complete).unwrap().fresh);
    let asked: Vec<String> = complete.requests().into_iter().map(|r| r.path).collect();
    assert_eq!(asked, ["/data/shard_06542.parquet"], "what was fetched before is not fetched again");
}

#[test]
fn a_download_that_cannot_be_read_is_fetched_again() {
    // a whole footer and a broken page: only reading the text shows it
    let mut broken = fs::read(shard(2)).unwrap();
    broken[1000..2000].fill(0xff);
    let broken = Arc::new(broken);
    let (good, train) = (Arc::new(fs::read(shard(2)).unwrap()), Arc::new(fs::read(shard(0)).unwrap()));
    let hub = Server::start(move |r, n| match r.path.as_str() {
        "/data/shard_06542.parquet" if n == 0 => Reply::File(broken.clone(), ETAG),
        "/data/shard_00000.parquet" => Reply::File(train.clone(), ETAG),
        _ => Reply::File(good.clone(), ETAG),
    });
    let root = tempfile::tempdir().unwrap();
    let error = full(root.path(), &hub).unwrap_err();
    assert!(error.is_environment() && error.to_string().contains("shard_06542.parquet"), "{error}");
    assert!(full(root.path(), &hub).unwrap().fresh);
    assert_eq!(hub.requests().len(), 4, "only the damaged shard twice");
}
