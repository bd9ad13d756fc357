//! The script is asked as the loop asks it; what it says is read as the loop reads it.
