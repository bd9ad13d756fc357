//! What a child finds that loads CUDA's libraries and asks the driver for its card.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::Library;
use serde::{Deserialize, Serialize};

use super::DRIVER;

/// What the child found.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What the loader says of each library that it could not load.
    pub(super) missing: Vec<String>,
    /// The driver's answer: a `CUresult`, 0 where all is well.
    pub(super) code: c_int,
    /// The newest CUDA that it understands: 12080 is 12.8.
    pub(super) driver: c_int,
    /// The first card's name.
    pub(super) name: String,
    /// Its compute capability.
    pub(super) capability: [c_int; 2],
}

impl Found {
    /// As the hidden command prints it: on a line of its own, for a driver may print as well.
    pub fn line(&self) -> serde_json::Result<String> {
        Ok(format!("\n{}\n", serde_json::to_string(self)?))
    }

    /// The last such line of what the command printed; `None` where the driver ended it before.
    pub(super) fn read(answer: &[u8]) -> Option<Self> {
        answer.rsplit(|&byte| byte == b'\n').find_map(|line| serde_json::from_slice(line).ok())
    }
}

/// Loads the driver's library and `libraries`, and asks the driver for its first card. For the hidden command.
pub fn try_libraries(libraries: &[String]) -> Found {
    let mut found = Found::default();
    for name in libraries {
        // SAFETY: what runs as a library is loaded is what runs when a trial starts, which is linked with it.
        match unsafe { Library::new(name) } {
            Ok(library) => std::mem::forget(library), // unloading runs their code again, for nothing
            Err(error) => found.missing.push(said(name, &error)),
        }
    }
    // SAFETY: as above.
    match unsafe { Library::new(DRIVER) } {
        Ok(driver) => {
            found.code = ask(&driver, &mut found).unwrap_or_else(|error| {
                found.missing.push(said(DRIVER, &error));
                0
            });
            std::mem::forget(driver);
        }
        Err(error) => found.missing.push(said(DRIVER, &error)),
    }
    found
}

/// The loader's words, the library's name before them.
fn said(name: &str, error: &libloading::Error) -> String {
    let text = std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string);
    if text.starts_with(name) { text } else { format!("{name}: {text}") }
}

/// The code of the first call that fails, else 0. Errors: the library has no such function.
fn ask(driver: &Library, found: &mut Found) -> Result<c_int, libloading::Error> {
    const MAJOR: c_int = 75; // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
    const MINOR: c_int = 76;
    const FIRST: c_int = 0;
    let mut name = [0; 256];
    let [major, minor] = &mut found.capability;
    // SAFETY: the types are those of cuda.h, unchanged since CUDA 2; each call writes one int, or into `name` at
    // most as many bytes as it has, the last a zero. The first ordinal is the first device's handle.
    unsafe {
        let init = driver.get::<unsafe extern "C" fn(c_uint) -> c_int>(c"cuInit")?;
        let version = driver.get::<unsafe extern "C" fn(*mut c_int) -> c_int>(c"cuDriverGetVersion")?;
        let named =
            driver.get::<unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_int>(c"cuDeviceGetName")?;
        let attribute =
            driver.get::<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int>(c"cuDeviceGetAttribute")?;
        let calls: [&mut dyn FnMut() -> c_int; 5] = [
            &mut || init(0),
            &mut || version(&mut found.driver),
            &mut || named(name.as_mut_ptr(), name.len() as c_int, FIRST),
            &mut || attribute(major, MAJOR, FIRST),
            &mut || attribute(minor, MINOR, FIRST),
        ];
        for call in calls {
            let code = call();
            if code != 0 {
                return Ok(code);
            }
        }
        found.name = CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
    }
    Ok(0)
}
