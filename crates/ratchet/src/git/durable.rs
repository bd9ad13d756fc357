//! What a power cut must not take back: objects before the refs that name them, names before what rests on
//! them.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Once,
};

use crate::{
    error::Result,
    state::{Tag, sync_folder},
};

/// Has libgit2 sync each object, ref and index, and the folder it renames it in, which it does not by itself.
pub(super) fn enable() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libgit2_sys::init();
        let option = libgit2_sys::GIT_OPT_ENABLE_FSYNC_GITDIR as std::ffi::c_int;
        // SAFETY: the library is initialised, and this option takes one int, which it stores in a flag of its
        // own. `Once` lets no second thread write that flag; one that reads it in between may skip a sync, but no
        // repository is opened before this returns.
        let code = unsafe { libgit2_sys::git_libgit2_opts(option, 1 as std::ffi::c_int) };
        debug_assert_eq!(code, 0, "an option that every libgit2 of this version knows");
    });
}

/// Makes durable that `objects/` holds the folders made for new objects: libgit2 syncs only within them.
pub(super) fn objects(common: &Path) -> Result<()> {
    sync_folder(&common.join("objects"))
}

/// Makes durable the folders above a ref, down from `refs/`; libgit2 syncs only the last.
pub(super) fn reference(common: &Path, name: &str) -> Result<()> {
    let folders = Path::new(name).ancestors().skip(2).filter(|folder| !folder.as_os_str().is_empty());
    folders.map(|folder| common.join(folder)).try_for_each(|folder| sync_folder(&folder))
}

/// Removes lock files that a killed driver left where only this tag's driver writes. The caller holds the
/// driver's lock. The user's own locks stay: git may be at work in the checkout.
pub(super) fn unlock(common: &Path, records: &[PathBuf], tag: &Tag) {
    let below = |name: &str| common.join(name).parent().map(Path::to_path_buf).unwrap_or_default();
    let own = [below(&tag.trial_ref(0)), common.join("refs/ratchet/saved")];
    for folder in records.iter().chain(&own) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if entry.path().extension().is_some_and(|extension| extension == "lock") {
                let _ = fs::remove_file(entry.path()); // what cannot be removed is named when git meets it
            }
        }
    }
    let _ = fs::remove_file(common.join(format!("{}.lock", tag.branch_ref()))); // absent as a rule
}
