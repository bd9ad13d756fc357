//! Reading shards, and what is said of files that are none.

use std::fs;

use prepare::corpus::{self, CorpusError, ShardReader};
use prepare::profile::Profile;

use crate::prepared::{documents, shard};

#[test]
fn bundled_shards_hold_what_their_readme_says() {
    // documents and bytes of text as listed in prepare/corpus/README.md
    let listed = [(1011, 4_802_881), (1012, 4_837_560), (112, 512_788), (113, 520_062)];
    for (number, counts) in listed.into_iter().enumerate() {
        let texts = documents(number as u32);
        assert_eq!((texts.len(), texts.iter().map(String::len).sum::<usize>()), counts);
        assert_eq!(ShardReader::open(&shard(number as u32)).unwrap().rows(), counts.0 as u64);
    }
}

#[test]
fn no_document_is_in_two_shards() {
    let mut all: Vec<String> = (0..4).flat_map(documents).collect();
    let n = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), n);
}

#[test]
fn an_altered_bundled_shard_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("shard_00002.parquet");
    fs::copy(shard(2), &copy).unwrap();
    assert_eq!(corpus::bundled_shard(dir.path(), 2).unwrap(), copy);
    fs::copy(shard(3), &copy).unwrap();
    let refused = corpus::bundled_shard(dir.path(), 2).unwrap_err();
    assert!(matches!(refused, CorpusError::Altered(_)));
    assert!(refused.to_string().contains("git checkout"));
    let absent = Profile::Laptop.spec().val_shard + 7;
    assert!(matches!(corpus::bundled_shard(dir.path(), absent), Err(CorpusError::Io { .. })));
}

#[test]
fn damaged_shards_are_errors_that_name_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shard_00000.parquet");
    let good = fs::read(shard(2)).unwrap();
    fs::write(&path, &good[..good.len() - 100]).unwrap();
    let cut = ShardReader::open(&path).err().unwrap();
    assert!(cut.to_string().contains("shard_00000.parquet"), "{cut}");
    // the footer is whole, the data is not
    let mut bad = good.clone();
    bad[1000..2000].fill(0xff);
    fs::write(&path, bad).unwrap();
    assert!(matches!(ShardReader::open(&path).unwrap().documents(0), Err(CorpusError::Parquet { .. })));
}
