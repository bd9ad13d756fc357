//! A prepared `smoke` cache of made-up text, small and quick to write, and readers for it.

use std::fs;
use std::path::Path;

use prepare::cache::{Cache, Paths, TokenFile};
use prepare::manifest::{Entry, Exam, Manifest, Recipe, Shard, sha256_file};
use prepare::profile::{BOS, Profile};
use prepare::rows::Rows;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

/// Rows of each exam.
pub(crate) const EXAM_ROWS: usize = 40;

/// Text in which a token's follower is one of four, so that a bigram model learns something at once.
pub(crate) fn text(rng: &mut StdRng, len: usize) -> Vec<u16> {
    let mut id = rng.random_range(0..256);
    std::iter::repeat_with(|| {
        id = (id * 5 + rng.random_range(0..4u16) + 17) % 256;
        id
    })
    .take(len)
    .collect()
}

/// Exam rows of such text.
pub(crate) fn rows(context: usize, count: usize, seed: u64) -> Rows {
    let mut rng = StdRng::seed_from_u64(seed);
    let ids = (0..count).flat_map(|_| std::iter::once(BOS).chain(text(&mut rng, context))).collect();
    Rows::new(context, ids).unwrap()
}

/// Byte lengths: 1 for the ids of the text, 3 for others, 0 for specials.
pub(crate) fn token_bytes() -> Vec<u8> {
    (0..8192)
        .map(|id| {
            if id < 256 {
                1
            } else if id < BOS {
                3
            } else {
                0
            }
        })
        .collect()
}

/// Writes a cache of these training documents (bodies, without BOS) below `root`.
pub(crate) fn prepare(root: &Path, documents: &[Vec<u16>]) {
    let paths = Paths::new(root, Profile::Smoke);
    fs::create_dir_all(paths.train()).unwrap();
    fs::create_dir_all(paths.exam()).unwrap();
    let mut tokens: Vec<u16> = Vec::new();
    let mut docs: Vec<u64> = vec![0];
    for body in documents {
        tokens.push(BOS);
        tokens.extend(body);
        docs.push(tokens.len() as u64);
    }
    let context = Profile::Smoke.spec().context;
    let files = [
        ("tokenizer.json", b"{}".to_vec()),
        ("token_bytes.u8", token_bytes()),
        ("train/tokens.u16", tokens.iter().flat_map(|id| id.to_le_bytes()).collect()),
        ("train/docs.u64", docs.iter().flat_map(|at| at.to_le_bytes()).collect()),
        ("exam/val.u16", rows(context, EXAM_ROWS, 1).to_bytes()),
        ("exam/audit.u16", rows(context, EXAM_ROWS, 2).to_bytes()),
    ];
    let mut entries = Vec::new();
    for (name, bytes) in files {
        let path = paths.dir().join(name);
        fs::write(&path, &bytes).unwrap();
        let sha256 = sha256_file(&path).unwrap();
        entries.push(Entry { path: name.into(), bytes: bytes.len() as u64, sha256 });
    }
    let shard = Shard {
        shard: 0,
        file_bytes: 0,
        sha256: String::new(),
        documents: documents.len() as u64,
        text_bytes: 0,
        tokens: tokens.len() as u64,
    };
    let exam = Exam { rows: EXAM_ROWS as u64, tokens: (EXAM_ROWS * context) as u64, cropped: 0 };
    let manifest = Manifest {
        profile: Profile::Smoke,
        recipe: Recipe::of(Profile::Smoke),
        train: vec![shard.clone()],
        val_source: shard.clone(),
        audit_source: shard,
        val: exam,
        audit: exam,
        files: entries,
    };
    fs::write(paths.manifest(), manifest.to_json()).unwrap();
}

/// Documents of such text, some of them longer than a row.
pub(crate) fn documents(count: usize) -> Vec<Vec<u16>> {
    let mut rng = StdRng::seed_from_u64(7);
    (0..count)
        .map(|_| {
            let len = rng.random_range(20..400);
            text(&mut rng, len)
        })
        .collect()
}

/// The training documents of a cache that holds these.
pub(crate) fn token_file(documents: &[Vec<u16>]) -> TokenFile {
    let root = tempfile::tempdir().unwrap();
    prepare(root.path(), documents);
    Cache::open_at(root.path(), Profile::Smoke).unwrap().train_tokens().unwrap()
}
