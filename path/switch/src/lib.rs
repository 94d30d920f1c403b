//! Where does it go.
