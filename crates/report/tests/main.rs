//! The report from outside: what stands on a page and in a drawing, and that no text of a night gets out of its place.

mod browser;
mod chromium;
mod drawing;
mod hostile;
mod nights;
mod page;
