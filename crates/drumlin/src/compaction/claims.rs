//! The scheduled compactions of one keyspace: tickets, their pieces (subcompactions), and what the pieces claim. The
//! types are those of the pure scheduler in `drumlin-policy`.

pub(crate) use drumlin_policy::schedule::{Flight, Piece, PieceState, TicketState};
