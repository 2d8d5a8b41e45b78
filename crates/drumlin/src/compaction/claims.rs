//! Plans under way in one keyspace, as the scheduler of `drumlin-policy` keeps them: tickets, their pieces, and what the
//! pieces claim.

pub(crate) use drumlin_policy::schedule::{Flight, Piece, PieceState, TicketState};
