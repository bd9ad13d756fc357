//! The `smoke` profile prepared once for all tests of this binary.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use prepare::build::{self, Options};
use prepare::cache::Cache;
use prepare::profile::Profile;
use prepare::progress::Silent;

/// A cache root that holds a freshly prepared `smoke`. Tests read it; those that change files copy it.
pub(crate) fn smoke_root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        // not a TempDir: statics are not dropped. An earlier run's data would hide a change of the code.
        let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join("prepared");
        if root.exists() {
            std::fs::remove_dir_all(&root).unwrap();
        }
        let options = Options { root: Some(root.clone()), ..Options::default() };
        assert!(build::prepare(Profile::Smoke, &options, &Silent).unwrap().fresh);
        root
    })
}

/// The prepared `smoke` profile.
pub(crate) fn smoke() -> Cache {
    Cache::open_at(smoke_root(), Profile::Smoke).unwrap()
}

/// A copy of the prepared `smoke` profile that a test may damage.
pub(crate) fn smoke_copy() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    copy(&smoke_root().join("smoke"), &root.path().join("smoke"));
    root
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let place = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &place);
        } else {
            std::fs::copy(entry.path(), place).unwrap();
        }
    }
}

/// The bundled shard `number`.
pub(crate) fn shard(number: u32) -> PathBuf {
    prepare::corpus::bundled().unwrap().join(prepare::corpus::shard_name(number))
}

/// All documents of the bundled shard `number`.
pub(crate) fn documents(number: u32) -> Vec<String> {
    let shard = prepare::corpus::ShardReader::open(&shard(number)).unwrap();
    (0..shard.row_groups()).flat_map(|group| shard.documents(group).unwrap()).collect()
}
