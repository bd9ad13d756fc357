//! Parquet shards of text: where the bundled ones lie, and reading documents from any.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::basic::Type;
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::ColumnDescPtr;

use crate::manifest::sha256_file;
use crate::profile::BUNDLED_SHA256;

/// The column that holds the documents.
const COLUMN: &str = "text";

/// Why a shard cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CorpusError {
    /// The repository's `prepare/corpus` is nowhere to be found.
    #[error(
        "no bundled corpus: {} does not exist here or in a directory above; run from the repository",
        corpus_file(0).display()
    )]
    NotFound,
    /// A bundled shard is another file than the one all results rest on.
    #[error("{} is not the bundled shard (its SHA-256 differs); run `git checkout -- prepare/corpus`", .0.display())]
    Altered(PathBuf),
    /// Opening or reading failed.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The shard.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is damaged.
    #[error("{} is no readable parquet file: {source}", path.display())]
    Parquet {
        /// The shard.
        path: PathBuf,
        /// What the parquet reader found.
        source: ParquetError,
    },
    /// The file holds something else.
    #[error("{} has no string column `{COLUMN}`", .0.display())]
    NoText(PathBuf),
    /// A document is no text.
    #[error("{}: document {document} of row group {group} is not UTF-8", path.display())]
    NotUtf8 {
        /// The shard.
        path: PathBuf,
        /// Row group, from 0.
        group: usize,
        /// Document in it, from 0.
        document: usize,
    },
}

impl CorpusError {
    /// The file whose content is at fault.
    pub fn damaged_file(&self) -> Option<&Path> {
        match self {
            CorpusError::Altered(path) | CorpusError::NoText(path) => Some(path),
            CorpusError::Parquet { path, .. } | CorpusError::NotUtf8 { path, .. } => Some(path),
            CorpusError::NotFound | CorpusError::Io { .. } => None,
        }
    }
}

/// The file name of shard `number`, the same for bundled and downloaded shards.
pub fn shard_name(number: u32) -> String {
    format!("shard_{number:05}.parquet")
}

fn corpus_file(number: u32) -> PathBuf {
    Path::new("prepare/corpus").join(shard_name(number))
}

/// The directory of the bundled shards: `prepare/corpus` in the current directory or one above it, else
/// where this program was built.
pub fn bundled() -> Result<PathBuf, CorpusError> {
    let here = std::env::current_dir().ok();
    let above = here.iter().flat_map(|dir| dir.ancestors()).map(|dir| dir.join("prepare/corpus"));
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    above.chain([built]).find(|dir| dir.join(shard_name(0)).is_file()).ok_or(CorpusError::NotFound)
}

/// The bundled shard `number` in `dir`, verified to be the file that results rest on.
pub fn bundled_shard(dir: &Path, number: u32) -> Result<PathBuf, CorpusError> {
    let path = dir.join(shard_name(number));
    let hash = sha256_file(&path).map_err(|source| CorpusError::Io { path: path.clone(), source })?;
    if BUNDLED_SHA256.get(number as usize) != Some(&hash.as_str()) {
        return Err(CorpusError::Altered(path));
    }
    Ok(path)
}

/// A parquet shard whose footer has been read.
pub struct ShardReader {
    path: PathBuf,
    column: usize,
    groups: usize,
    rows: u64,
}

impl ShardReader {
    /// Opens `path` and reads its footer.
    ///
    /// Errors: no file, no parquet footer, no string column named `text`.
    pub fn open(path: &Path) -> Result<ShardReader, CorpusError> {
        let file = open_parquet(path)?;
        let meta = file.metadata().file_metadata();
        let text = |c: &ColumnDescPtr| {
            c.name() == COLUMN && c.physical_type() == Type::BYTE_ARRAY && c.max_rep_level() == 0
        };
        let column = meta.schema_descr().columns().iter().position(text);
        Ok(ShardReader {
            path: path.to_owned(),
            column: column.ok_or_else(|| CorpusError::NoText(path.to_owned()))?,
            groups: file.num_row_groups(),
            rows: meta.num_rows().max(0) as u64,
        })
    }

    /// Number of row groups.
    pub fn row_groups(&self) -> usize {
        self.groups
    }

    /// Documents in all row groups; a missing text counts and is read as no document.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// The documents of one row group, in order.
    ///
    /// Errors: damaged data, text that is not UTF-8.
    pub fn documents(&self, group: usize) -> Result<Vec<String>, CorpusError> {
        let damaged = |source| CorpusError::Parquet { path: self.path.clone(), source };
        // the parquet crate moves the one cursor of its file: threads must not share a reader
        let file = open_parquet(&self.path)?;
        let rows = file.get_row_group(group).map_err(damaged)?;
        let column = rows.get_column_reader(self.column).map_err(damaged)?;
        let ColumnReader::ByteArrayColumnReader(mut column) = column else {
            return Err(CorpusError::NoText(self.path.clone()));
        };
        let wanted = rows.metadata().num_rows().max(0) as usize;
        let (mut values, mut levels, mut read) = (Vec::with_capacity(wanted), Vec::new(), 0);
        while read < wanted {
            let (records, _, _) =
                column.read_records(wanted - read, Some(&mut levels), None, &mut values).map_err(damaged)?;
            if records == 0 {
                let short = format!("row group {group} ends after {read} of {wanted} documents");
                return Err(damaged(ParquetError::EOF(short)));
            }
            read += records;
        }
        let text = |(document, value): (usize, parquet::data_type::ByteArray)| {
            String::from_utf8(value.data().to_vec()).map_err(|_| CorpusError::NotUtf8 {
                path: self.path.clone(),
                group,
                document,
            })
        };
        values.into_iter().enumerate().map(text).collect()
    }
}

fn open_parquet(path: &Path) -> Result<SerializedFileReader<File>, CorpusError> {
    let file = File::open(path).map_err(|source| CorpusError::Io { path: path.to_owned(), source })?;
    SerializedFileReader::new(file).map_err(|source| CorpusError::Parquet { path: path.to_owned(), source })
}
