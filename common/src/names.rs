//! Enums that people and files call by name.

/// Declares an enum with a name beside each variant, and makes `ALL`, `name`
/// and `FromStr` of this one table; the error of `FromStr` lists the names.
#[macro_export]
macro_rules! named {
    (
        $(#[$meta:meta])* $vis:vis enum $type:ident {
            $(#[$first_meta:meta])* $first:ident = $first_name:literal
            $(, $(#[$variant_meta:meta])* $variant:ident = $name:literal)* $(,)?
        }
    ) => {
        $(#[$meta])*
        $vis enum $type { $(#[$first_meta])* $first, $($(#[$variant_meta])* $variant,)* }

        impl $type {
            $vis const ALL: [Self; [$first_name $(, $name)*].len()] =
                [Self::$first $(, Self::$variant)*];

            $vis const fn name(self) -> &'static str {
                match self { Self::$first => $first_name, $(Self::$variant => $name,)* }
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::id::ParseIdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let known = Self::ALL.into_iter().find(|known| known.name() == text);
                known.ok_or_else(|| $crate::id::ParseIdError {
                    text: text.to_owned(),
                    expected: concat!("one of ", $first_name $(, ", ", $name)*),
                })
            }
        }
    };
}
