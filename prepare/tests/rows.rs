//! Rows as they travel between processes.

use prepare::profile::BOS;
use prepare::rows::{Rows, RowsError};

#[test]
fn rows_survive_the_wire() {
    let rows = Rows::new(2, vec![BOS, 1, 0x0203, BOS, BOS, 5]).unwrap();
    let bytes = rows.to_bytes();
    assert_eq!(bytes[2..6], [1, 0, 3, 2], "little-endian, nothing around it");
    let back = Rows::from_bytes(2, &bytes).unwrap();
    assert_eq!(back, rows);
    assert_eq!((back.len(), back.context()), (2, 2));
    assert_eq!(back.row(1), [BOS, BOS, 5]);
    assert_eq!(back.iter().collect::<Vec<_>>(), [&[BOS, 1, 0x0203][..], &[BOS, BOS, 5]]);
}

#[test]
fn anything_but_whole_aligned_rows_is_refused() {
    assert_eq!(Rows::new(2, vec![]), Err(RowsError::Empty));
    assert_eq!(Rows::new(2, vec![BOS, 1]), Err(RowsError::Ragged { bytes: 4, row: 3 }));
    assert_eq!(Rows::from_bytes(0, &[0; 3]), Err(RowsError::Ragged { bytes: 3, row: 1 }));
    let unaligned = Rows::new(1, vec![BOS, 1, 2, 3]);
    assert_eq!(unaligned, Err(RowsError::NotAligned { row: 1, id: 2 }));
}
