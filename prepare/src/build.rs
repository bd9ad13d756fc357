//! Prepares a profile: fetch, train the tokenizer, tokenize once, pack the exams, write the manifest.
//!
//! Everything is made in `staging/`, synced, and moved into place under a lock; `manifest.json` comes last.
//! Killed anywhere, what is left is the old data, or none and a directory that the next preparation cleans;
//! finished downloads and partial ones are kept and resumed.

use std::fs::{self, File, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::cache::{self, Cache, CacheError, Paths};
use crate::corpus::{self, CorpusError, ShardReader, shard_name};
use crate::encode::{EncodeError, Encoded, encode_shard};
use crate::fetch::{CLIMBMIX_URL, FetchError, Fetcher, Patience, sync_dir};
use crate::manifest::{Entry, Exam, Manifest, Recipe, Shard, sha256_file};
use crate::pack;
use crate::profile::{BOS, Corpus, Profile, Spec};
use crate::progress::{Progress, Unit};
use crate::rows::Split;
use crate::tokenizer::{Tokenizer, TokenizerError};

/// What may differ between preparations of a profile.
#[derive(Debug, Clone)]
pub struct Options {
    /// Root of the cache; `None`: [`Cache::root`].
    pub root: Option<PathBuf>,
    /// Training shards of `full`; `None`: as many as are prepared, else the profile's.
    pub shards: Option<u32>,
    /// Downloads at a time.
    pub workers: usize,
    /// Mirrors of the data set, the first one that has a shard serves it.
    pub base_urls: Vec<String>,
    /// How long to wait for servers.
    pub patience: Patience,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            root: None,
            shards: None,
            workers: 4,
            base_urls: vec![CLIMBMIX_URL.to_owned()],
            patience: Patience::default(),
        }
    }
}

/// Why a preparation failed.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// Some shards could not be had.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Text cannot be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// No tokenizer could be made.
    #[error(transparent)]
    Tokenizer(#[from] TokenizerError),
    /// The cache cannot be found or read.
    #[error(transparent)]
    Cache(#[from] CacheError),
    /// An exam would be empty.
    #[error("{} holds less than one row of {tokens} tokens; the {split} exam needs one", path.display())]
    NoRow {
        /// The shard.
        path: PathBuf,
        /// Which exam.
        split: Split,
        /// Tokens in a row.
        tokens: usize,
    },
    /// The disk refused.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl BuildError {
    /// Whether the surroundings are at fault (no network, no corpus, no cache directory), not this program
    /// or its disk.
    pub fn is_environment(&self) -> bool {
        match self {
            BuildError::Fetch(e) => !e.local,
            BuildError::Corpus(_) => true,
            BuildError::Cache(e) => matches!(e, CacheError::NoRoot),
            _ => false,
        }
    }
}

/// Prepared data, and whether this call made it.
#[derive(Debug)]
pub struct Prepared {
    /// The data, verified.
    pub cache: Cache,
    /// False when it was there already.
    pub fresh: bool,
}

/// Prepares `profile` unless it already is. Safe to call from several processes at once: one works, the
/// others wait and find it done.
pub fn prepare(profile: Profile, options: &Options, progress: &dyn Progress) -> Result<Prepared, BuildError> {
    let root = options.root.clone().map_or_else(Cache::root, Ok)?;
    if let Ok(Some(cache)) = current(&root, profile, options) {
        return Ok(Prepared { cache, fresh: false });
    }
    let paths = Paths::new(&root, profile);
    fs::create_dir_all(paths.dir()).map_err(writing(paths.dir()))?;
    let _lock = lock(&paths, progress)?;
    match current(&root, profile, options) {
        Ok(Some(cache)) => return Ok(Prepared { cache, fresh: false }),
        Ok(None) | Err(CacheError::NotPrepared { .. }) => {}
        Err(CacheError::Stale { .. }) => {
            progress.say(&format!("{profile} was prepared by another recipe; preparing it again"));
        }
        Err(CacheError::Damaged { path, why, .. }) => {
            progress.say(&format!("{}: {why}; preparing {profile} again", path.display()));
        }
        Err(why @ (CacheError::Io { .. } | CacheError::NoRoot)) => return Err(why.into()),
    }
    let staging = paths.dir().join("staging");
    clear(&staging)?;
    let made =
        Build { profile, spec: profile.spec(), options, paths: &paths, staging: &staging, progress }.run();
    // a download that passed every check and still cannot be read is fetched again by the next run
    if let (Err(BuildError::Corpus(e)), Corpus::ClimbMix) = (&made, profile.spec().corpus)
        && let Some(shard) = e.damaged_file()
    {
        fs::remove_file(shard).map_err(writing(shard))?;
        progress.say(&format!("{} is damaged and was removed; run again to fetch it anew", shard.display()));
    }
    // after a failure the space matters: the disk may be full
    let cleared = clear(&staging);
    made?;
    cleared?;
    Ok(Prepared { cache: Cache::open_at(&root, profile)?, fresh: true })
}

/// The prepared data; none when `options` ask for another number of shards.
fn current(root: &Path, profile: Profile, options: &Options) -> Result<Option<Cache>, CacheError> {
    let cache = Cache::open_at(root, profile)?;
    let fits = match (profile.spec().corpus, options.shards) {
        (Corpus::ClimbMix, Some(n)) => cache.manifest().train.len() == n as usize,
        _ => true,
    };
    Ok(fits.then_some(cache))
}

/// Held as long as the file is open; the system releases it even after a kill.
fn lock(paths: &Paths, progress: &dyn Progress) -> Result<File, BuildError> {
    let path = paths.dir().join("prepare.lock");
    let file = File::create(&path).map_err(writing(&path))?;
    match file.try_lock() {
        Ok(()) => return Ok(file),
        Err(TryLockError::WouldBlock) => {
            progress
                .say(&format!("another preparation is at work in {}; waiting for it", paths.dir().display()));
        }
        Err(TryLockError::Error(source)) => return Err(BuildError::Write { path, source }),
    }
    file.lock().map_err(writing(&path))?;
    Ok(file)
}

/// One preparation under way.
struct Build<'a> {
    profile: Profile,
    spec: &'static Spec,
    options: &'a Options,
    paths: &'a Paths,
    staging: &'a Path,
    progress: &'a dyn Progress,
}

/// A shard's number and file.
type Source = (u32, PathBuf);

impl Build<'_> {
    fn run(&self) -> Result<(), BuildError> {
        for dir in ["train", "exam"] {
            let dir = self.staging.join(dir);
            fs::create_dir_all(&dir).map_err(writing(&dir))?;
        }
        let (train, val, audit) = self.sources()?;
        let tokenizer = self.train_tokenizer(&train)?;
        self.write(cache::TOKENIZER, tokenizer.to_json()?.as_bytes())?;
        self.write(cache::TOKEN_BYTES, &tokenizer.token_bytes())?;
        let train = self.encode_train(&tokenizer, &train)?;
        let (val_source, val) = self.encode_exam(&tokenizer, &val, Split::Val)?;
        let (audit_source, audit) = self.encode_exam(&tokenizer, &audit, Split::Audit)?;
        let names = [
            cache::TOKENIZER.to_owned(),
            cache::TOKEN_BYTES.to_owned(),
            cache::TRAIN_TOKENS.to_owned(),
            cache::TRAIN_DOCS.to_owned(),
            cache::exam_path(Split::Val),
            cache::exam_path(Split::Audit),
        ];
        let files = names.into_iter().map(|name| self.entry(name)).collect::<Result<_, _>>()?;
        let recipe = Recipe::of(self.profile);
        let manifest =
            Manifest { profile: self.profile, recipe, train, val_source, audit_source, val, audit, files };
        self.install(&manifest)
    }

    /// The files of the training shards, of val and of audit, fetched where need be.
    fn sources(&self) -> Result<(Vec<Source>, Source, Source), BuildError> {
        let exams = [self.spec.val_shard, self.spec.audit_shard];
        let mut files = Vec::new();
        match self.spec.corpus {
            Corpus::Bundled => {
                let dir = corpus::bundled()?;
                for &shard in self.spec.train_shards.iter().chain(&exams) {
                    files.push((shard, corpus::bundled_shard(&dir, shard)?));
                }
            }
            Corpus::ClimbMix => {
                let dir = self.paths.shards();
                fs::create_dir_all(&dir).map_err(writing(&dir))?;
                let train = match self.options.shards.or_else(|| self.shards_before()) {
                    Some(n) => (0..n).collect(),
                    None => self.spec.train_shards.to_vec(),
                };
                let shards: Vec<u32> = train.into_iter().chain(exams).collect();
                let fetcher =
                    Fetcher::new(&dir, &self.options.base_urls, &self.options.patience, self.progress);
                fetcher.fetch(&shards, self.options.workers)?;
                files.extend(shards.iter().map(|&n| (n, dir.join(shard_name(n)))));
            }
        }
        let [train @ .., val, audit] = &files[..] else { unreachable!("two exam shards were pushed") };
        Ok((train.to_vec(), val.clone(), audit.clone()))
    }

    /// How many training shards a stale or damaged preparation had: the wish is remembered.
    fn shards_before(&self) -> Option<u32> {
        let text = fs::read(self.paths.manifest()).ok()?;
        let old: serde_json::Value = serde_json::from_slice(&text).ok()?;
        u32::try_from(old.get("train")?.as_array()?.len()).ok().filter(|&n| n > 0)
    }

    fn train_tokenizer(&self, shards: &[Source]) -> Result<Tokenizer, BuildError> {
        let readers =
            shards.iter().map(|(_, path)| ShardReader::open(path)).collect::<Result<Vec<_>, _>>()?;
        let total = readers.iter().map(ShardReader::rows).sum();
        let task = self.progress.start("training the tokenizer", Some(total), Unit::Documents);
        let mut failed = None;
        let groups = readers.iter().flat_map(|shard| (0..shard.row_groups()).map(move |g| (shard, g)));
        let documents = groups
            .map_while(|(shard, group)| shard.documents(group).map_err(|e| failed = Some(e)).ok())
            .flat_map(|documents| {
                task.advance(documents.len() as u64);
                documents
            });
        let trained = Tokenizer::train(documents);
        match failed {
            Some(e) => Err(e.into()),
            None => Ok(trained?),
        }
    }

    fn encode_train(&self, tokenizer: &Tokenizer, shards: &[Source]) -> Result<Vec<Shard>, BuildError> {
        let path = self.staging.join(cache::TRAIN_TOKENS);
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&path).map_err(writing(&path))?);
        let mut docs = vec![0];
        let mut all = Vec::new();
        for source in shards {
            let sink = |ids: &[u16]| {
                docs.push(docs[docs.len() - 1] + ids.len() as u64);
                // token files are little-endian, as the machine is, or `cache` does not compile
                out.write_all(bytemuck::cast_slice(ids))
            };
            all.push(self.encode(tokenizer, source, &path, sink)?);
        }
        let file = out.into_inner().map_err(|e| writing(&path)(e.into_error()))?;
        file.sync_all().map_err(writing(&path))?;
        self.write(cache::TRAIN_DOCS, bytemuck::cast_slice(&docs))?;
        Ok(all)
    }

    fn encode_exam(
        &self,
        tokenizer: &Tokenizer,
        source: &Source,
        split: Split,
    ) -> Result<(Shard, Exam), BuildError> {
        let (mut ids, mut docs) = (Vec::new(), vec![0]);
        let name = cache::exam_path(split);
        let shard = self.encode(tokenizer, source, &self.staging.join(&name), |document| {
            ids.extend_from_slice(document);
            docs.push(ids.len() as u64);
            Ok(())
        })?;
        let wanted = match split {
            Split::Val => self.spec.val_tokens,
            Split::Audit => self.spec.audit_tokens,
        };
        let (row_len, most) = (self.spec.row_len(), wanted / self.spec.context);
        let (rows_ids, tally) = pack::exam(&ids, &docs, row_len, self.spec.pieces, most, BOS);
        let rows = (rows_ids.len() / row_len) as u64;
        if rows == 0 {
            return Err(BuildError::NoRow { path: source.1.clone(), split, tokens: row_len });
        }
        self.write(&name, bytemuck::cast_slice(&rows_ids))?;
        let tokens = rows * self.spec.context as u64;
        if tokens < wanted as u64 {
            self.progress.say(&format!("the {split} shard fills {tokens} of {wanted} {split} tokens"));
        }
        let exam = Exam { rows, tokens, cropped: tally.cropped };
        Ok((shard, exam))
    }

    /// Encodes one shard into `sink`, which writes `path`.
    fn encode(
        &self,
        tokenizer: &Tokenizer,
        (number, file): &Source,
        path: &Path,
        sink: impl FnMut(&[u16]) -> io::Result<()>,
    ) -> Result<Shard, BuildError> {
        let reader = ShardReader::open(file)?;
        let what = format!("encoding {}", shard_name(*number));
        let task = self.progress.start(&what, Some(reader.rows()), Unit::Documents);
        let encoded = encode_shard(tokenizer, &reader, &*task, sink).map_err(|e| match e {
            EncodeError::Corpus(e) => BuildError::from(e),
            EncodeError::Sink(e) => writing(path)(e),
        })?;
        let Encoded { documents, text_bytes, tokens } = encoded;
        let reading = |source| CorpusError::Io { path: file.clone(), source };
        let file_bytes = fs::metadata(file).map_err(reading)?.len();
        let sha256 = sha256_file(file).map_err(reading)?;
        Ok(Shard { shard: *number, file_bytes, sha256, documents, text_bytes, tokens })
    }

    fn write(&self, name: &str, content: &[u8]) -> Result<(), BuildError> {
        let path = self.staging.join(name);
        write_synced(&path, content).map_err(writing(&path))
    }

    fn entry(&self, path: String) -> Result<Entry, BuildError> {
        let file = self.staging.join(&path);
        let reading = |source| BuildError::from(CacheError::Io { path: file.clone(), source });
        let bytes = fs::metadata(&file).map_err(reading)?.len();
        Ok(Entry { bytes, sha256: sha256_file(&file).map_err(reading)?, path })
    }

    /// Moves the files into place. While they are being exchanged there is no manifest: whoever opens the
    /// data then finds it unprepared, never mixed.
    fn install(&self, manifest: &Manifest) -> Result<(), BuildError> {
        let old = self.paths.manifest();
        match fs::remove_file(&old) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(writing(&old)(e)),
            _ => sync_dir(self.paths.dir()).map_err(writing(self.paths.dir()))?,
        }
        for dir in [self.paths.train(), self.paths.exam()] {
            fs::create_dir_all(&dir).map_err(writing(&dir))?;
        }
        for entry in &manifest.files {
            let place = self.paths.dir().join(&entry.path);
            fs::rename(self.staging.join(&entry.path), &place).map_err(writing(&place))?;
        }
        for dir in [&self.paths.train(), &self.paths.exam(), self.paths.dir()] {
            sync_dir(dir).map_err(writing(dir))?;
        }
        self.write("manifest.json", manifest.to_json().as_bytes())?;
        let renamed = fs::rename(self.staging.join("manifest.json"), &old);
        renamed.and_then(|()| sync_dir(self.paths.dir())).map_err(writing(&old))
    }
}

fn write_synced(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(content)?;
    file.sync_all()
}

fn clear(dir: &Path) -> Result<(), BuildError> {
    match fs::remove_dir_all(dir) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(writing(dir)(e)),
        _ => Ok(()),
    }
}

fn writing(path: &Path) -> impl FnOnce(io::Error) -> BuildError + '_ {
    move |source| BuildError::Write { path: path.to_owned(), source }
}
