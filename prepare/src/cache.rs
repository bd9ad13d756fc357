//! The prepared data of a profile on disk: where it lies, and opening it only if it is what its manifest says.
//!
//! Opening checks the size of every file and the SHA-256 of its content. Hashing the gigabytes of `full`
//! takes seconds, so a large file is hashed once and its hash remembered in `verified.json` together with
//! inode, size, mtime and ctime. The ctime cannot be set back by a program, so content that changes is
//! hashed again; small files are hashed every time.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::manifest::{Entry, Manifest, Recipe, sha256_file};
use crate::profile::Profile;
use crate::rows::{Rows, RowsError, Split};
use crate::stamp::Stamps;

/// Names the cache's root directory when set.
pub const CACHE_ENV: &str = "RATCHET_CACHE";

#[cfg(target_endian = "big")]
compile_error!("token files are little-endian and are mapped, not read: this needs a little-endian machine");

/// Why prepared data cannot be used. Every message names the command that prepares it.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// No cache directory is known on this platform.
    #[error("no cache directory: neither ${CACHE_ENV} nor a home directory is set; set {CACHE_ENV}")]
    NoRoot,
    /// The profile was never prepared here, or a preparation was interrupted.
    #[error("no prepared data in {}; run {}", dir.display(), remedy(*profile))]
    NotPrepared {
        /// The profile asked for.
        profile: Profile,
        /// Its directory.
        dir: PathBuf,
    },
    /// Prepared by another version of this program or with other constants.
    #[error("{} was prepared by another recipe; run {}", manifest.display(), remedy(*profile))]
    Stale {
        /// The profile asked for.
        profile: Profile,
        /// The manifest read.
        manifest: PathBuf,
    },
    /// A file is not what the manifest says.
    #[error("{}: {why}; run {}", path.display(), remedy(*profile))]
    Damaged {
        /// The profile asked for.
        profile: Profile,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// Reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The commands that help: for `full` also the profile that needs no download.
fn remedy(profile: Profile) -> String {
    let command = |p| format!("`cargo run --release -p prepare -- --profile {p}`");
    match profile {
        Profile::Full => {
            format!("{}, or use {} which needs no download", command(profile), command(Profile::Laptop))
        }
        _ => command(profile),
    }
}

/// Where the files of one profile lie. Says nothing about whether they exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    dir: PathBuf,
}

/// Paths below a profile's directory, as the manifest names them.
pub(crate) const TOKENIZER: &str = "tokenizer.json";
pub(crate) const TOKEN_BYTES: &str = "token_bytes.u8";
pub(crate) const TRAIN_TOKENS: &str = "train/tokens.u16";
pub(crate) const TRAIN_DOCS: &str = "train/docs.u64";

/// The exam file of a split, as the manifest names it.
pub(crate) fn exam_path(split: Split) -> String {
    format!("exam/{split}.u16")
}

impl Paths {
    /// The files of `profile` below the cache's `root`.
    pub fn new(root: &Path, profile: Profile) -> Paths {
        Paths { dir: root.join(profile.name()) }
    }

    /// The profile's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Says what is prepared; its presence says that it is.
    pub fn manifest(&self) -> PathBuf {
        self.dir.join("manifest.json")
    }

    /// The tokenizer, in the standard format.
    pub fn tokenizer(&self) -> PathBuf {
        self.dir.join(TOKENIZER)
    }

    /// The directory of the training files: all that a fit may read.
    pub fn train(&self) -> PathBuf {
        self.dir.join("train")
    }

    /// The directory of the exam files, which no contestant may read.
    pub fn exam(&self) -> PathBuf {
        self.dir.join("exam")
    }

    /// Downloaded shards.
    pub fn shards(&self) -> PathBuf {
        self.dir.join("shards")
    }

    /// Hashes remembered for large files.
    pub(crate) fn stamps(&self) -> PathBuf {
        self.dir.join("verified.json")
    }
}

/// The verified data of one profile.
#[derive(Debug)]
pub struct Cache {
    profile: Profile,
    paths: Paths,
    manifest: Manifest,
}

impl Cache {
    /// The root directory of all profiles: `$RATCHET_CACHE`, else `ratchet/` in the platform's cache directory.
    pub fn root() -> Result<PathBuf, CacheError> {
        match std::env::var_os(CACHE_ENV) {
            Some(dir) if !dir.is_empty() => Ok(dir.into()),
            _ => {
                let dirs = directories::BaseDirs::new().ok_or(CacheError::NoRoot)?;
                Ok(dirs.cache_dir().join("ratchet"))
            }
        }
    }

    /// Where the files of `profile` lie, prepared or not.
    pub fn of(profile: Profile) -> Result<Paths, CacheError> {
        Ok(Paths::new(&Cache::root()?, profile))
    }

    /// Whether `profile` has a current manifest. Hashes nothing.
    pub fn is_prepared(profile: Profile) -> bool {
        Cache::of(profile).is_ok_and(|paths| read_manifest(&paths, profile).is_ok())
    }

    /// Opens the data of `profile` below [`Cache::root`], every file verified.
    pub fn open(profile: Profile) -> Result<Cache, CacheError> {
        Cache::open_at(&Cache::root()?, profile)
    }

    /// Opens the data of `profile` below `root`, every file verified.
    pub fn open_at(root: &Path, profile: Profile) -> Result<Cache, CacheError> {
        Cache::open_files(root, profile, |_| true)
    }

    /// Opens only what a fit needs, `manifest.json` and `train/`: in its sandbox the exam cannot be read.
    pub fn open_train(profile: Profile) -> Result<Cache, CacheError> {
        Cache::open_train_at(&Cache::root()?, profile)
    }

    /// [`Cache::open_train`] below `root`.
    pub fn open_train_at(root: &Path, profile: Profile) -> Result<Cache, CacheError> {
        Cache::open_files(root, profile, |entry| entry.path.starts_with("train/"))
    }

    /// Opens only what text needs, `manifest.json` and the tokenizer.
    #[cfg(feature = "contest")]
    pub(crate) fn open_tokenizer(profile: Profile) -> Result<Cache, CacheError> {
        Cache::open_files(&Cache::root()?, profile, |entry| entry.path == TOKENIZER)
    }

    fn open_files(root: &Path, profile: Profile, wanted: fn(&Entry) -> bool) -> Result<Cache, CacheError> {
        let paths = Paths::new(root, profile);
        let manifest = read_manifest(&paths, profile)?;
        let mut stamps = Stamps::read(&paths.stamps());
        for entry in manifest.files.iter().filter(|e| wanted(e)) {
            verify(&paths, profile, entry, &mut stamps)?;
        }
        stamps.save();
        Ok(Cache { profile, paths, manifest })
    }

    /// The profile opened.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Where its files lie.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// What it holds.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Maps the training documents.
    pub fn train_tokens(&self) -> Result<TokenFile, CacheError> {
        let tokens = self.map(TRAIN_TOKENS)?;
        let docs = self.map(TRAIN_DOCS)?;
        let file = TokenFile { tokens, docs };
        let (n, end) = (file.docs().len(), file.docs().last().copied());
        if n < 2 || end != Some(file.tokens().len() as u64) {
            let why = format!("{n} offsets ending at {end:?} do not fit {} tokens", file.tokens().len());
            return Err(CacheError::Damaged {
                profile: self.profile,
                path: self.paths.dir.join(TRAIN_DOCS),
                why,
            });
        }
        Ok(file)
    }

    /// Reads the fixed rows of an exam.
    pub fn exam_rows(&self, split: Split) -> Result<Rows, CacheError> {
        let path = self.paths.dir.join(exam_path(split));
        let bytes = fs::read(&path).map_err(|source| CacheError::Io { path: path.clone(), source })?;
        Rows::from_bytes(self.profile.spec().context, &bytes).map_err(|e: RowsError| CacheError::Damaged {
            profile: self.profile,
            path,
            why: e.to_string(),
        })
    }

    /// Byte length of each id's raw bytes, 0 for specials: (vocab).
    pub fn token_bytes(&self) -> Result<Vec<u8>, CacheError> {
        let path = self.paths.dir.join(TOKEN_BYTES);
        let lengths = fs::read(&path).map_err(|source| CacheError::Io { path: path.clone(), source })?;
        let vocab = self.profile.spec().vocab;
        if lengths.len() != vocab {
            let why = format!("{} lengths for {vocab} ids", lengths.len());
            return Err(CacheError::Damaged { profile: self.profile, path, why });
        }
        Ok(lengths)
    }

    fn map(&self, name: &str) -> Result<Mmap, CacheError> {
        let path = self.paths.dir.join(name);
        // SAFETY: prepared files are replaced by rename and never written in place, so the mapped inode
        // keeps its length and content for as long as it is mapped.
        let map = File::open(&path).and_then(|file| unsafe { Mmap::map(&file) });
        map.map_err(|source| CacheError::Io { path, source })
    }
}

/// Training documents one after the other, mapped from disk.
#[derive(Debug)]
pub struct TokenFile {
    tokens: Mmap,
    docs: Mmap,
}

impl TokenFile {
    /// Every id; each document starts with its BOS.
    pub fn tokens(&self) -> &[u16] {
        bytemuck::cast_slice(&self.tokens)
    }

    /// Offsets into [`TokenFile::tokens`]: document i is `docs[i]..docs[i + 1]`. One entry more than documents.
    pub fn docs(&self) -> &[u64] {
        bytemuck::cast_slice(&self.docs)
    }
}

fn read_manifest(paths: &Paths, profile: Profile) -> Result<Manifest, CacheError> {
    let path = paths.manifest();
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            return Err(CacheError::NotPrepared { profile, dir: paths.dir.clone() });
        }
        Err(source) => return Err(CacheError::Io { path, source }),
    };
    // a manifest of another version may lack keys: that is stale, not damaged
    match serde_json::from_str::<Manifest>(&text) {
        Ok(manifest) if manifest.profile == profile && manifest.recipe == Recipe::of(profile) => Ok(manifest),
        _ => Err(CacheError::Stale { profile, manifest: path }),
    }
}

fn verify(paths: &Paths, profile: Profile, entry: &Entry, stamps: &mut Stamps) -> Result<(), CacheError> {
    let path = paths.dir.join(&entry.path);
    let damaged = |why| CacheError::Damaged { profile, path: path.clone(), why };
    let seen = SystemTime::now();
    let meta = match fs::metadata(&path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(damaged("the file is missing".into())),
        Err(source) => return Err(CacheError::Io { path, source }),
    };
    if meta.len() != entry.bytes {
        return Err(damaged(format!("{} bytes, the manifest says {}", meta.len(), entry.bytes)));
    }
    let sha256 = match stamps.known(&entry.path, &meta) {
        Some(known) => known,
        None => {
            let hash = sha256_file(&path).map_err(|source| CacheError::Io { path: path.clone(), source })?;
            stamps.remember(&entry.path, &meta, seen, &hash);
            hash
        }
    };
    if sha256 != entry.sha256 {
        return Err(damaged("its SHA-256 is not the manifest's".into()));
    }
    Ok(())
}
