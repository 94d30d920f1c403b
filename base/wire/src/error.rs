//! The form that every parse error has.
//!
//! An error is an enum whose variants name the field that is wrong. It prints as a sentence and converts
//! into the [`DropReason`](firelane_units::DropReason) under which the frame is counted, so that a station
//! can write `?`.

/// Declares one header's parse error: `Variant = "sentence" => DropReason`.
macro_rules! parse_error {
    ($(#[$doc:meta])* $name:ident { $($(#[$about:meta])* $variant:ident = $text:literal => $reason:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum $name { $($(#[$about])* $variant),* }

        impl $name {
            /// The reason under which a frame with this error is counted.
            pub const fn drop_reason(self) -> firelane_units::DropReason {
                match self { $(Self::$variant => firelane_units::DropReason::$reason),* }
            }
        }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),* })
            }
        }

        impl core::error::Error for $name {}

        impl From<$name> for firelane_units::DropReason {
            fn from(error: $name) -> Self {
                error.drop_reason()
            }
        }
    };
}
