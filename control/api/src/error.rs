//! What a failed request says: a status word and, if one field is at fault, its name, its value and what
//! would have been allowed.

use std::fmt;

use firelane_model::FieldError;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Status;

/// A refused or failed request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, ToSchema)]
#[serde(from = "Problem", into = "Problem")]
pub struct ApiError {
    /// Why.
    pub status: Status,
    /// The field at fault; empty if it is none in particular.
    pub field: String,
    /// What stood there.
    pub value: String,
    /// What is allowed.
    pub allowed: String,
    /// The step of a plan that failed, in words; empty if there was no plan.
    pub step: String,
}

/// The body of an error: the same with the status both as a word for programs and as text for people.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
pub(crate) struct Problem {
    code: Status,
    #[serde(default)]
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    field: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    value: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    allowed: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    step: String,
}

impl From<Problem> for ApiError {
    fn from(problem: Problem) -> Self {
        let Problem { code, field, value, allowed, step, .. } = problem;
        Self { status: code, field, value, allowed, step }
    }
}

impl From<ApiError> for Problem {
    fn from(error: ApiError) -> Self {
        let ApiError { status, field, value, allowed, step } = error;
        Self { code: status, status: status.text().to_owned(), field, value, allowed, step }
    }
}

impl ApiError {
    /// An error that is about `field`.
    pub fn new(status: Status, field: &str, value: impl fmt::Display, allowed: impl Into<String>) -> Self {
        let (field, value, allowed) = (field.to_owned(), value.to_string(), allowed.into());
        Self { status, field, value, allowed, step: String::new() }
    }

    /// The same error of a step of a plan, which of many objects it is about.
    pub fn of_step(self, step: &impl fmt::Display) -> Self {
        Self { step: step.to_string(), ..self }
    }

    /// The whole on one line: the step comes first, if there was a plan.
    pub fn with_step(&self) -> String {
        match self.step.as_str() {
            "" => self.to_string(),
            step => format!("{step}: {self}"),
        }
    }

    /// The detail in parentheses, with a space before it; empty if there is none.
    pub fn detail(&self) -> String {
        let equals = match (self.field.as_str(), self.value.as_str()) {
            ("", value) => value.to_owned(),
            (field, "") => field.to_owned(),
            (field, value) => format!("{field}={value}"),
        };
        match (equals.as_str(), self.allowed.as_str()) {
            ("", "") => String::new(),
            ("", allowed) => format!(" ({allowed})"),
            (equals, "") => format!(" ({equals})"),
            (equals, allowed) => format!(" ({equals}: {allowed})"),
        }
    }
}

impl From<Status> for ApiError {
    fn from(status: Status) -> Self {
        Self::new(status, "", "", "")
    }
}

impl From<FieldError> for ApiError {
    fn from(fault: FieldError) -> Self {
        Self::new(Status::BadValue, &fault.field, fault.value, fault.allowed)
    }
}

impl fmt::Display for ApiError {
    /// The status text and the detail, on one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.status.text(), self.detail().replace('\n', " "))
    }
}

impl std::error::Error for ApiError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_comes_first_and_the_detail_names_the_field() {
        assert_eq!(ApiError::from(Status::NotFound).to_string(), "object not found");
        let error = ApiError::new(Status::BadValue, "priority", "urgent", "low, medium or high");
        assert_eq!(error.to_string(), "invalid value (priority=urgent: low, medium or high)");
        let text = serde_json::to_string(&error).unwrap();
        assert!(text.contains(r#""code":"bad_value","status":"invalid value","field":"priority""#), "{text}");
        assert_eq!(serde_json::from_str::<ApiError>(&text).unwrap(), error);
        let of_step = error.clone().of_step(&"add flow f0");
        assert_eq!((of_step.to_string(), error.with_step()), (error.to_string(), error.to_string()));
        assert_eq!(of_step.with_step(), format!("add flow f0: {error}"));
        let text = serde_json::to_string(&of_step).unwrap();
        assert_eq!(serde_json::from_str::<ApiError>(&text).unwrap(), of_step);
    }
}
