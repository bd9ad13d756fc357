//! The report's files, and a run that rewrites them after every trial.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    error::{Doing, Error, Result},
    plain_file,
    progress::{Observer, Progress},
    show::View,
    state::Tag,
};

/// A report that takes no longer than this is always made anew.
const CHEAP: Duration = Duration::from_millis(100);
/// One that takes longer has at most one part in so many of a run's time.
const PART: u32 = 20;

/// What a report was written to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page; the other files lie beside it.
    pub page: PathBuf,
}

/// The files' names.
const FILES: [&str; 4] = ["report.html", "progress.svg", "progress.png", "results.json"];

/// Writes the report into `out`, else into the tag's folder `report/`. Files of an earlier report there are replaced,
/// each whole or not at all. They are not synced: the journal can make them again.
///
/// Exit code 2 where there is neither `out` nor a tag.
pub fn write(view: &View, out: Option<&Path>) -> Result<Written> {
    let folder = match (out, &view.tag) {
        (Some(out), _) => out.to_path_buf(),
        (None, Some(tag)) => view.state.tag(tag).path().join("report"),
        (None, None) => {
            return Err(Error::usage("there is nothing to report: no tag exists yet")
                .hint("`ratchet run` starts one"));
        }
    };
    if out.is_some() {
        check_ours(&folder)?;
    }
    let night = view.night()?;
    fs::create_dir_all(&folder).map_err(|error| {
        Error::usage("not a folder that a report could be written to").at(&folder).because(error)
    })?;
    let json = |error| Error::internal("could not write the results").because(error);
    let drawn = |error| Error::internal("could not draw the progress").because(error);
    let texts = [
        report::html(&night).into_bytes(),
        report::progress_svg(&night).into_bytes(),
        report::progress_png(&night).map_err(drawn)?,
        serde_json::to_vec(&night).map_err(json)?,
    ];
    for (name, bytes) in FILES.into_iter().zip(texts) {
        let (path, via) = (folder.join(name), folder.join(format!(".{name}.{}", std::process::id())));
        let written = fs::write(&via, bytes).and_then(|()| fs::rename(&via, &path));
        written.inspect_err(|_| drop(fs::remove_file(&via))).doing("write", &path)?;
    }
    Ok(Written { page: folder.join(FILES[0]) })
}

/// Refuses a folder that a person named and that holds files of these names which are no earlier report's.
fn check_ours(folder: &Path) -> Result<()> {
    let there = |name: &&&str| fs::symlink_metadata(folder.join(name)).is_ok();
    let Some(found) = FILES.iter().find(there) else { return Ok(()) };
    let page = plain_file::read_to_string(&folder.join(FILES[0])).unwrap_or_default();
    if page.contains(report::MARK) {
        return Ok(());
    }
    Err(Error::usage("stands there, and is no report's")
        .at(folder.join(found))
        .hint("name another folder with --out, or move the file"))
}

/// Follows a run, and rewrites its report after every trial.
pub struct Writer<'a> {
    root: PathBuf,
    tag: Tag,
    inner: &'a mut dyn Observer,
    /// Before this there is no other report.
    next: Instant,
    /// What went wrong the last time; told once.
    wrong: Option<String>,
}

impl<'a> Writer<'a> {
    /// For a run in `root`; what happens goes on to `inner`.
    pub fn new(root: &Path, tag: Tag, inner: &'a mut dyn Observer) -> Self {
        Self { root: root.to_path_buf(), tag, inner, next: Instant::now(), wrong: None }
    }

    /// Writes the report at the end of the run; `None` where that fails, which is told.
    pub fn finish(mut self) -> Option<Written> {
        self.rewrite()
    }

    fn rewrite(&mut self) -> Option<Written> {
        let began = Instant::now();
        let written = View::open(&self.root, Some(self.tag.clone())).and_then(|view| write(&view, None));
        let took = began.elapsed();
        self.next = Instant::now() + if took > CHEAP { took * PART } else { Duration::ZERO };
        let wrong = written.as_ref().err().map(Error::to_string);
        if let Some(wrong) = wrong.as_ref().filter(|_| wrong != self.wrong) {
            self.inner.tell(Progress::Note(&format!("the report is not up to date: {wrong}")));
        }
        self.wrong = wrong;
        written.ok()
    }
}

impl Observer for Writer<'_> {
    fn tell(&mut self, progress: Progress<'_>) {
        self.inner.tell(progress);
        if matches!(progress, Progress::Ended { .. }) && Instant::now() >= self.next {
            self.rewrite();
        }
    }
}
