//! A model at rest: named tensors in `model.safetensors`, the rest of it in `config.json`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use candle_core::{Device, Result, Tensor};

/// File of the tensors.
pub const MODEL_FILE: &str = "model.safetensors";
/// File of the config.
pub const CONFIG_FILE: &str = "config.json";

/// Enough to rebuild a model.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// Every tensor by name, on any device, in any dtype.
    pub tensors: BTreeMap<String, Tensor>,
    /// Whatever else the model needs, e.g. depth and width.
    pub config: serde_json::Value,
}

impl Checkpoint {
    /// The tensor called `name`, or an error that says what is missing.
    pub fn tensor(&self, name: &str) -> Result<&Tensor> {
        self.tensors
            .get(name)
            .ok_or_else(|| candle_core::Error::msg(format!("no tensor {name} in the checkpoint")))
    }

    /// The config as the contestant's own type.
    pub fn config<C: serde::de::DeserializeOwned>(&self) -> Result<C> {
        serde_json::from_value(self.config.clone()).map_err(candle_core::Error::wrap)
    }

    /// The same in main memory, where nobody else has a handle: a thread that the contestant left behind could go
    /// on changing the tensors while they are written.
    pub(crate) fn settled(self) -> Result<Checkpoint> {
        let copy = |tensor: Tensor| tensor.detach().to_device(&Device::Cpu)?.copy();
        let tensors = self.tensors.into_iter().map(|(name, tensor)| Ok((name, copy(tensor)?)));
        Ok(Checkpoint { tensors: tensors.collect::<Result<_>>()?, config: self.config })
    }

    /// Writes both files into `dir`; each is whole or absent, whatever happens meanwhile.
    pub fn write(&self, dir: &Path) -> Result<()> {
        let temporary = dir.join(format!("{MODEL_FILE}.part"));
        let tensors: std::collections::HashMap<_, _> =
            self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.clone())).collect();
        candle_core::safetensors::save(&tensors, &temporary)?;
        rename_durably(&temporary, &dir.join(MODEL_FILE))?;
        let config = serde_json::to_vec_pretty(&self.config).map_err(candle_core::Error::wrap)?;
        write_durably(&dir.join(CONFIG_FILE), &config)?;
        Ok(())
    }

    /// Reads what [`Checkpoint::write`] wrote, the tensors onto `device`. Links and pipes are refused: a
    /// pipe would be read for ever.
    pub fn read(dir: &Path, device: &Device) -> Result<Checkpoint> {
        let model = dir.join(MODEL_FILE);
        for file in [&model, &dir.join(CONFIG_FILE)] {
            if fs::symlink_metadata(file).is_ok_and(|meta| !meta.is_file()) {
                candle_core::bail!("{} is no plain file", file.display())
            }
        }
        let tensors = candle_core::safetensors::load(&model, device)
            .map_err(|e| candle_core::Error::msg(format!("{}: {e}", model.display())))?;
        let config = dir.join(CONFIG_FILE);
        let text =
            fs::read(&config).map_err(|e| candle_core::Error::msg(format!("{}: {e}", config.display())))?;
        let config = serde_json::from_slice(&text)
            .map_err(|e| candle_core::Error::msg(format!("{}: {e}", config.display())))?;
        Ok(Checkpoint { tensors: tensors.into_iter().collect(), config })
    }
}

/// Writes `path` so that after a crash it holds either its old content or all of the new.
pub(crate) fn write_durably(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!("{name}.part"));
    File::create(&temporary)?.write_all(bytes)?;
    rename_durably(&temporary, path)
}

fn rename_durably(from: &Path, to: &Path) -> io::Result<()> {
    File::open(from)?.sync_all()?;
    fs::rename(from, to)?;
    if let Some(dir) = to.parent() {
        File::open(dir)?.sync_all()?; // the rename itself
    }
    Ok(())
}
