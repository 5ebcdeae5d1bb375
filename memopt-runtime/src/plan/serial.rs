//! Plans in files: a map of paths to what is done there, `{"features.0": "gc bit"}`.

use super::{Plan, Segment};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// As its text: `"gc bit"`.
impl Serialize for Segment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Segment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.segments())
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Segments;

        impl<'de> Visitor<'de> for Segments {
            type Value = Plan;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a map of paths to ways to keep them, such as {\"features.0\": \"gc bit\"}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Plan, A::Error> {
                let mut plan = Plan::new();
                while let Some((path, segment)) = map.next_entry::<String, Segment>()? {
                    plan.add(path, segment).map_err(A::Error::custom)?;
                }
                Ok(plan)
            }
        }

        deserializer.deserialize_map(Segments)
    }
}
