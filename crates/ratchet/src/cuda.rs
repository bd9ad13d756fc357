//! Whether trials can use the GPU: a card, a driver that answers, a compiler that the driver understands, and the
//! libraries that what it compiles is linked with.
//!
//! Candle links CUDA's libraries, so that where one is missing a program ends before its `main`. They are loaded
//! here first, and in a child: a driver's library runs code of its own, which may crash or hang.

mod found;

use std::{ffi::c_int, fmt, path::PathBuf, sync::OnceLock, time::Duration};

use prepare::profile::cuda_device_present;
use sandbox::Confinement;
use serde::{Deserialize, Serialize};

pub use self::found::{Found, try_libraries};
use crate::{
    exec::{self, End, Spec, allowed_env},
    runlog::plain,
};

/// The hidden command that loads the libraries named by its arguments and prints a [`Found`].
pub const COMMAND: &str = "try-cuda";
/// A driver that takes longer does not answer; a cold start with eight cards takes several seconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// The oldest compiler that knows every architecture for which `kernels` builds, 12.0 the last of them.
const OLDEST: Version = Version(12, 8);
/// The oldest compute capability for which the kernels are written: bf16 and `cp.async`.
const LEAST: Version = Version(8, 0);
/// The driver's own library.
const DRIVER: &str = "libcuda.so.1";

/// Whether the GPU can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cuda {
    /// There is none, or the environment hides it.
    Absent,
    /// There is one that cannot be used.
    Unusable(Obstacle),
    /// It can be used.
    Usable(Card),
}

/// What is in the way, and what helps; each a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What was seen.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

/// A GPU that answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// As its driver calls it.
    pub name: String,
    /// The newest CUDA that its driver understands.
    pub driver: Version,
    /// Its compute capability.
    pub capability: Version,
    /// What compiles for it, where something has to.
    pub compiler: Option<Compiler>,
}

/// A CUDA compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compiler {
    /// `…/bin/nvcc`.
    pub nvcc: PathBuf,
    /// Its CUDA's.
    pub version: Version,
}

/// Major and minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version(pub u32, pub u32);

/// Looks, by trying, once in a process: a driver that hangs is waited for once. `compiles` where a build needs the
/// compiler and CUDA's libraries as well.
pub fn look(compiles: bool) -> Cuda {
    let hidden =
        std::env::var("CUDA_VISIBLE_DEVICES").is_ok_and(|devices| devices.is_empty() || devices == "-1");
    if hidden || !cuda_device_present() {
        return Cuda::Absent;
    }
    static SEEN: [OnceLock<Cuda>; 2] = [const { OnceLock::new() }; 2];
    let looked = || {
        let card = compiles
            .then(|| nvcc().ok_or_else(no_compiler).and_then(Compiler::at))
            .transpose()
            .and_then(|compiler| judge(load(compiler.as_ref(), None)?, compiler));
        card.map_or_else(Cuda::Unusable, Cuda::Usable)
    };
    SEEN[usize::from(compiles)].get_or_init(looked).clone()
}

/// Whether a process that is confined as trials are can use a card that can be used without.
///
/// Errors: what is in its way.
pub fn look_confined(card: &Card, confinement: Confinement) -> Result<(), Obstacle> {
    judge(load(card.compiler.as_ref(), Some(confinement))?, card.compiler.clone()).map(drop)
}

/// The kernel driver's version line.
pub fn gpu_driver() -> Option<String> {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// Where `nvcc` is: on PATH, or below CUDA's usual roots.
fn nvcc() -> Option<PathBuf> {
    let roots = ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"].iter().filter_map(std::env::var_os);
    let below = roots
        .map(PathBuf::from)
        .chain(["/usr/local/cuda".into(), "/opt/cuda".into()])
        .map(|root| root.join("bin"));
    exec::on_path("nvcc").or_else(|| below.map(|folder| folder.join("nvcc")).find(|file| file.is_file()))
}

fn no_compiler() -> Obstacle {
    Obstacle {
        what: "an NVIDIA device, but no nvcc to build for it".into(),
        remedy: format!("install the CUDA toolkit, {OLDEST} or newer, or put nvcc on PATH"),
    }
}

impl Compiler {
    fn at(nvcc: PathBuf) -> Result<Self, Obstacle> {
        let said = exec::output_of(&nvcc.to_string_lossy(), &["--version"]);
        let version = said.as_deref().and_then(release).ok_or_else(|| Obstacle {
            what: format!("{} --version does not say of which CUDA it is", nvcc.display()),
            remedy: "install the CUDA toolkit anew".into(),
        })?;
        if version < OLDEST {
            return Err(Obstacle {
                what: format!("{} is of CUDA {version}; the kernels need {OLDEST}", nvcc.display()),
                remedy: "install a newer CUDA toolkit and put its nvcc first on PATH".into(),
            });
        }
        Ok(Self { nvcc, version })
    }

    /// The toolkit's folder, links resolved.
    pub fn root(&self) -> Option<PathBuf> {
        let nvcc = std::fs::canonicalize(&self.nvcc).ok()?;
        Some(nvcc.parent()?.parent()?.to_path_buf())
    }

    /// What candle links, by the names under which the loader looks for it.
    fn libraries(&self) -> Vec<String> {
        let major = self.version.0;
        let named = ["cublas", "cublasLt", "nvrtc", "cudart"].map(|name| format!("lib{name}.so.{major}"));
        named.into_iter().chain(["libcurand.so.10".to_owned()]).collect()
    }
}

/// `Cuda compilation tools, release 12.8, V12.8.93` → 12.8.
fn release(text: &str) -> Option<Version> {
    let (_, after) = text.split_once("release ")?;
    let number = after.split(|c: char| c != '.' && !c.is_ascii_digit()).next()?;
    let (major, minor) = number.split_once('.')?;
    Some(Version(major.parse().ok()?, minor.parse().ok()?))
}

/// Has a child load the driver and what `compiler` links.
fn load(compiler: Option<&Compiler>, confinement: Option<Confinement>) -> Result<Found, Obstacle> {
    let silent = |why: String| Obstacle {
        what: format!("the NVIDIA driver does not answer: {why}"),
        remedy: "see whether `nvidia-smi` answers; if not, restart the driver or the machine".into(),
    };
    let this = std::env::current_exe().map_err(|error| silent(error.to_string()))?;
    let mut command = vec![this.to_string_lossy().into_owned(), COMMAND.to_owned()];
    command.extend(compiler.map(Compiler::libraries).unwrap_or_default());
    let spec = Spec { confinement, ..Spec::new(&command, "/".into(), allowed_env(), PATIENCE) };
    match exec::ask(spec) {
        (End::Exited(0), answer) => Found::read(&answer)
            .ok_or_else(|| silent("it ends the program that asks it, before that has an answer".into())),
        (end, _) => Err(silent(format!("a program that asks it {end}"))),
    }
}

/// What the child's findings mean, first things first.
fn judge(found: Found, compiler: Option<Compiler>) -> Result<Card, Obstacle> {
    if let Some(why) = found.missing.iter().find(|why| why.starts_with(DRIVER)) {
        return Err(Obstacle {
            what: format!("an NVIDIA device, but its driver's library does not load: {}", plain(why, 160)),
            remedy: "install the NVIDIA driver's libraries, or start the container with its GPU runtime"
                .into(),
        });
    }
    if found.code != 0 {
        return Err(refused(found.code));
    }
    // a version below zero is none
    let [driver, major, minor] =
        [found.driver, found.capability[0], found.capability[1]].map(|n| u32::try_from(n).unwrap_or(0));
    let (driver, capability) = (Version(driver / 1000, driver % 1000 / 10), Version(major, minor));
    let name = Some(plain(&found.name, 80)).filter(|name| !name.is_empty());
    let name = name.unwrap_or_else(|| "a GPU without a name".to_owned());
    if let Some(compiler) = &compiler {
        let version = compiler.version;
        if driver < version {
            // what it compiles for later cards is translated by the driver, which knows no newer language
            return Err(Obstacle {
                what: format!("the driver understands CUDA {driver}, and nvcc is of {version}"),
                remedy: format!("update the NVIDIA driver, or put the nvcc of CUDA {driver} first on PATH"),
            });
        }
        if capability < LEAST {
            return Err(Obstacle {
                what: format!("{name} has compute capability {capability}; the kernels need {LEAST}"),
                remedy: "use the profile laptop on the CPU, or another card (CUDA_VISIBLE_DEVICES)".into(),
            });
        }
        if let Some(first) = found.missing.first() {
            return Err(missing(first, &found.missing[1..], compiler));
        }
    }
    Ok(Card { name, driver, capability, compiler })
}

fn missing(first: &str, others: &[String], compiler: &Compiler) -> Obstacle {
    let name = |said: &str| said.split(':').next().unwrap_or_default().to_owned();
    let mut what = format!("CUDA's libraries do not load: {}", plain(first, 160));
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|said| name(said)).collect();
        what.push_str(&format!("; nor {}", names.join(", ")));
    }
    let folders = ["lib64", "lib", "targets/x86_64-linux/lib"];
    let folder = compiler.root().and_then(|root| {
        folders.map(|below| root.join(below)).into_iter().find(|f| f.join(name(first)).exists())
    });
    let remedy = match folder {
        Some(folder) => format!("they are in {}: add it to LD_LIBRARY_PATH", folder.display()),
        None => format!(
            "install the runtime libraries of CUDA {} (cuBLAS, cuRAND, NVRTC), or add their folder to LD_LIBRARY_PATH",
            compiler.version.0
        ),
    };
    Obstacle { what, remedy }
}

/// What a driver's refusal means; the codes are `CUresult`'s.
fn refused(code: c_int) -> Obstacle {
    let (why, remedy) = match code {
        34 => ("the library found is the toolkit's stub", "take the folder `stubs` out of LD_LIBRARY_PATH"),
        35 | 36 => ("the driver is too old", "update the NVIDIA driver"),
        46 => ("the card is taken", "end what runs on it, or see `nvidia-smi -q -d COMPUTE` for its mode"),
        100 | 101 => {
            ("it sees no card", "see `nvidia-smi -L`, and whether CUDA_VISIBLE_DEVICES names one of them")
        }
        802 => ("the system is not ready", "start the service nvidia-fabricmanager"),
        803 => (
            "its library and the kernel's driver are of different versions",
            "restart the machine after an update; in a container, use the host's libcuda",
        ),
        804 => {
            ("the card has no forward compatibility", "take the folder of cuda-compat out of LD_LIBRARY_PATH")
        }
        999 => ("an unknown error", "run `sudo modprobe nvidia_uvm`, or restart the machine"),
        _ => ("cuInit failed", "see whether `nvidia-smi` answers, and `dmesg` for what the driver says"),
    };
    Obstacle { what: format!("the NVIDIA driver refuses: {why} (code {code})"), remedy: remedy.into() }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiler() -> Compiler {
        Compiler { nvcc: "/nowhere/bin/nvcc".into(), version: Version(12, 8) }
    }

    /// A machine on which all is well.
    fn good() -> Found {
        Found { driver: 13_000, name: "NVIDIA H200".into(), capability: [9, 0], ..Found::default() }
    }

    fn obstacle(found: Found) -> Obstacle {
        judge(found, Some(compiler())).unwrap_err()
    }

    #[test]
    fn a_card_that_answers_and_all_that_is_linked_are_enough() {
        let card = judge(good(), Some(compiler())).unwrap();
        assert_eq!((card.name.as_str(), card.driver), ("NVIDIA H200", Version(13, 0)));
        assert_eq!(card.capability, Version(9, 0));
    }

    #[test]
    fn a_task_that_compiles_nothing_needs_the_driver_alone() {
        let old = Found { driver: 11_040, capability: [7, 5], ..good() };
        assert_eq!(judge(old, None).unwrap().compiler, None);
        assert!(judge(Found { code: 100, ..good() }, None).is_err());
    }

    #[test]
    fn what_is_missing_is_named_with_what_helps() {
        let gone = |name: &str| format!("{name}: cannot open shared object file: No such file or directory");
        let found = Found { missing: vec![gone("libcublas.so.12"), gone("libcurand.so.10")], ..good() };
        let Obstacle { what, remedy } = obstacle(found);
        assert!(
            what.contains("libcublas.so.12: cannot open") && what.ends_with("nor libcurand.so.10"),
            "{what}"
        );
        assert!(remedy.contains("CUDA 12") && remedy.contains("LD_LIBRARY_PATH"), "{remedy}");
        let found = Found { missing: vec![gone("libcublas.so.12"), gone("libcuda.so.1")], ..good() };
        assert!(obstacle(found).what.contains("libcuda.so.1"), "the driver comes first");
    }

    #[test]
    fn libraries_that_the_loader_does_not_look_for_are_pointed_at() {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["bin", "lib64"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let nvcc = dir.path().join("bin/nvcc");
        std::fs::write(&nvcc, "").unwrap();
        std::fs::write(dir.path().join("lib64/libcublas.so.12"), "").unwrap();
        let found = Found { missing: vec!["libcublas.so.12: cannot open".into()], ..good() };
        let obstacle = judge(found, Some(Compiler { nvcc, version: Version(12, 8) })).unwrap_err();
        assert!(obstacle.remedy.contains(&format!("{}", dir.path().join("lib64").display())), "{obstacle}");
    }

    #[test]
    fn a_driver_older_than_the_compiler_cannot_run_what_it_makes() {
        let Obstacle { what, remedy } = obstacle(Found { driver: 12_040, ..good() });
        assert!(
            what.contains("12.4") && what.contains("12.8") && remedy.contains("12.4"),
            "{what}: {remedy}"
        );
    }

    #[test]
    fn a_card_older_than_the_kernels_is_no_card() {
        let what = obstacle(Found { capability: [7, 5], name: "Tesla T4".into(), ..good() }).what;
        assert!(what.contains("Tesla T4") && what.contains("7.5") && what.contains("8.0"), "{what}");
    }

    #[test]
    fn what_a_driver_says_of_its_card_is_fit_for_a_terminal() {
        let name = "Toy\u{1b}[31m H200\u{7}\n\u{202e}".to_owned();
        let card = judge(Found { name, ..good() }, Some(compiler())).unwrap();
        assert_eq!(card.name, "Toy H200");
        let found = Found { name: "\u{7}".into(), driver: -5, capability: [-1, -1], ..good() };
        let card = judge(Found { name: found.name.clone(), ..good() }, None).unwrap();
        assert_eq!(card.name, "a GPU without a name");
        let what = obstacle(found).what;
        assert!(what.contains("CUDA 0.0"), "no version is older than any: {what}");
    }

    #[test]
    fn an_answer_is_found_among_what_the_driver_prints() {
        let json = serde_json::to_string(&good()).unwrap();
        for answer in [
            json.clone(),
            format!("driver: hello\n{json}"),
            format!("driver: {{}}\n{json}\ndriver: goodbye"), // what C's stdio has kept comes last
            format!("\u{1b}[31m\n\n{json}\n\n"),
        ] {
            assert_eq!(Found::read(answer.as_bytes()), Some(good()), "{answer:?}");
        }
        for answer in ["", "driver: hello\n", "{}", "{\"missing\":[]"] {
            assert_eq!(Found::read(answer.as_bytes()), None, "{answer:?}");
        }
        assert_eq!(Found::read(&[&[0xff, b'\n'], json.as_bytes()].concat()), Some(good()));
    }

    #[test]
    fn a_refusal_says_its_code() {
        for code in [34, 35, 36, 46, 100, 802, 803, 804, 999, 12345] {
            let text = obstacle(Found { code, ..good() }).to_string();
            assert!(text.contains(&format!("(code {code})")) && !text.contains('\n'), "{text}");
        }
        assert!(obstacle(Found { code: 803, ..good() }).what.contains("different versions"));
    }

    #[test]
    fn the_compilers_release_is_read() {
        let said = "nvcc: NVIDIA (R) Cuda compiler driver\nCopyright (c) 2005-2025 NVIDIA Corporation\n\
                    Cuda compilation tools, release 13.0, V13.0.88\n";
        assert_eq!(release(said), Some(Version(13, 0)));
        assert_eq!(release("release 12.10.1"), None, "not a release of two numbers");
        assert_eq!(release("no such program"), None);
        assert!(Version(12, 10) > Version(12, 9) && Version(13, 0) > Version(12, 10));
    }
}
