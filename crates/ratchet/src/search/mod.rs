//! How the search changes how it searches: settings (level 1.5) and mechanisms (level 2).

pub mod adoption;
pub mod cycle;
pub mod evidence;
#[cfg(test)]
mod fixture;
mod folder;
pub mod research;
pub mod settings;
pub mod voice;
