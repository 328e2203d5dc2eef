//! Python's operators.

use super::budget::{Budget, Step, fail};
use super::format;
use super::syntax::Operator;
use super::value::{Heap, Value};

/// Applies a binary operator.
///
/// # Errors
/// A value does not support the operator, the division is by zero, or the result is out of range.
pub fn apply<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>, heap: &Heap<'a, '_>) -> Step<Value<'a>> {
    if let Value::Undefined(name) = left {
        return fail(match (operator, right) {
            (Operator::Subtract, Value::Undefined(other)) => format!(
                "{name} is undefined, and {name}-{other} is a subtraction; did you mean {name}_{other}?",
                name = &**name,
                other = &**other
            ),
            _ => format!("{} is undefined", &**name),
        });
    }
    if let Value::Undefined(name) = right {
        return fail(format!("{} is undefined", &**name));
    }
    match (operator, left, right) {
        (Operator::Add, Value::Text(a), Value::Text(b)) => {
            heap.budget.take(a.len() + b.len())?;
            heap.text([&**a, &**b].concat())
        }
        (Operator::Add, Value::List(a), Value::List(b)) if a.is_tuple == b.is_tuple => {
            heap.budget.take((a.len() + b.len()) * 32)?;
            let mut items = a.to_vec();
            items.extend(b.to_vec());
            heap.shared(items, a.is_tuple).map(Value::List)
        }
        (Operator::Multiply, Value::Text(_) | Value::List(_), times) if times.as_int().is_some() => {
            repeat(left, times.as_int().unwrap_or(0), heap)
        }
        (Operator::Multiply, times, Value::Text(_) | Value::List(_)) if times.as_int().is_some() => {
            repeat(right, times.as_int().unwrap_or(0), heap)
        }
        (Operator::Remainder, Value::Text(pattern), _) => {
            let arguments = match right {
                Value::List(list) if list.is_tuple => list.to_vec(),
                other => vec![other.clone()],
            };
            // A single container may stay unused.
            let spare = matches!(right, Value::Dict(_)) || matches!(right, Value::List(list) if !list.is_tuple);
            heap.text(format::percent(pattern, &arguments, spare, heap.budget)?)
        }
        _ => numbers(operator, left, right),
    }
}

fn repeat<'a>(value: &Value<'a>, times: i64, heap: &Heap<'a, '_>) -> Step<Value<'a>> {
    let times = usize::try_from(times).unwrap_or(0);
    match value {
        Value::Text(text) => {
            heap.budget.take(text.len().saturating_mul(times))?;
            heap.text(text.repeat(times))
        }
        Value::List(list) => {
            heap.budget.take(list.len().saturating_mul(times).saturating_mul(32))?;
            let items = list.to_vec();
            let repeated = std::iter::repeat_n(items, times).flatten().collect();
            heap.shared(repeated, list.is_tuple).map(Value::List)
        }
        other => fail(format!("{} cannot be repeated", other.kind())),
    }
}

fn numbers<'a>(operator: Operator, left: &Value<'a>, right: &Value<'a>) -> Step<Value<'a>> {
    if let (Some(a), Some(b)) = (left.as_int(), right.as_int())
        && !matches!(operator, Operator::Divide)
        && !(operator == Operator::Power && b < 0)
    {
        return integers(operator, a, b);
    }
    let (Some(a), Some(b)) = (left.as_float(), right.as_float()) else {
        return fail(format!("{} and {} have no such operation", left.kind(), right.kind()));
    };
    if b == 0.0 && matches!(operator, Operator::Divide | Operator::FloorDivide | Operator::Remainder) {
        return fail("a division by zero");
    }
    Ok(Value::Float(match operator {
        Operator::Add => a + b,
        Operator::Subtract => a - b,
        Operator::Multiply => a * b,
        Operator::Divide => a / b,
        Operator::FloorDivide => (a / b).floor(),
        Operator::Remainder => a - b * (a / b).floor(),
        Operator::Power => a.powf(b),
    }))
}

fn integers<'a>(operator: Operator, a: i64, b: i64) -> Step<Value<'a>> {
    if b == 0 && matches!(operator, Operator::FloorDivide | Operator::Remainder) {
        return fail("a division by zero");
    }
    let result = match operator {
        Operator::Add => a.checked_add(b),
        Operator::Subtract => a.checked_sub(b),
        Operator::Multiply => a.checked_mul(b),
        // Python rounds down, and the remainder has the sign of the divisor.
        Operator::FloorDivide | Operator::Divide => {
            let quotient = a.checked_div(b);
            quotient.map(|q| if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { q - 1 } else { q })
        }
        Operator::Remainder => {
            let remainder = a.wrapping_rem(b);
            Some(if remainder != 0 && (remainder < 0) != (b < 0) { remainder + b } else { remainder })
        }
        Operator::Power => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    result.map_or_else(|| fail("a number out of range"), |n| Ok(Value::Int(n)))
}

/// `-value`.
pub fn negative<'a>(value: &Value<'a>) -> Step<Value<'a>> {
    match (value.as_int(), value) {
        (Some(i), _) => i.checked_neg().map_or_else(|| fail("a number out of range"), |i| Ok(Value::Int(i))),
        (None, Value::Float(f)) => Ok(Value::Float(-f)),
        (None, other) => fail(format!("{} has no sign", other.kind())),
    }
}

/// `+value`.
pub fn positive<'a>(value: &Value<'a>) -> Step<Value<'a>> {
    match (value.as_int(), value) {
        (Some(i), _) => Ok(Value::Int(i)),
        (None, Value::Float(_)) => Ok(value.clone()),
        (None, other) => fail(format!("{} has no sign", other.kind())),
    }
}

/// `item in whole`.
///
/// # Errors
/// `whole` contains no values.
pub fn contains<'a>(whole: &Value<'a>, item: &Value<'a>, budget: &Budget<'_>) -> Step<bool> {
    match (whole, item) {
        (Value::Text(whole), Value::Text(item)) => {
            budget.read(whole.len())?;
            Ok(whole.contains(&**item))
        }
        (Value::Undefined(_), _) => Ok(false),
        (Value::Dict(dict), item) => Ok(dict.get(item).is_some()),
        (Value::List(list), item) => {
            for candidate in (0..).map_while(|i| list.get(i)) {
                if candidate.equals(item, budget)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        (whole, item) => fail(format!("in: {} does not contain {}", whole.kind(), item.kind())),
    }
}

/// An index from the start, or if negative from the end; None outside.
pub fn position(index: i64, length: usize) -> Option<usize> {
    let from_end = if index < 0 { i64::try_from(length).ok()?.checked_add(index)? } else { index };
    usize::try_from(from_end).ok().filter(|i| *i < length)
}

/// `value[start:stop:step]`.
///
/// # Errors
/// The value is not a sequence, a bound is not an integer, or the step is 0.
pub fn slice<'a>(value: &Value<'a>, bounds: &[Value<'a>; 3], heap: &Heap<'a, '_>) -> Step<Value<'a>> {
    let length = match value {
        Value::Text(_) | Value::List(_) => value.len().unwrap_or(0),
        Value::Undefined(name) => return fail(format!("{} is undefined", &**name)),
        _ => return Ok(Value::undefined("slice")),
    };
    let mut numbers = [None; 3];
    for (number, bound) in numbers.iter_mut().zip(bounds) {
        *number = match bound {
            Value::None => None,
            other => match other.as_int() {
                Some(i) => Some(i),
                None => return fail(format!("a slice's bound: expected an integer, found {}", other.kind())),
            },
        };
    }
    let [start, stop, step] = numbers;
    let chosen = indices(length, start, stop, step.unwrap_or(1))?;
    heap.budget.take(length)?;
    match value {
        Value::Text(text) => {
            heap.budget.take(length * 4)?;
            let characters: Vec<char> = text.chars().collect();
            heap.text(chosen.filter_map(|i| characters.get(i)).collect::<String>())
        }
        Value::List(list) => {
            let items = list.items.borrow();
            let chosen: Vec<_> = chosen.filter_map(|i| items.get(i).cloned()).collect();
            drop(items);
            heap.shared(chosen, list.is_tuple).map(Value::List)
        }
        other => Ok(other.clone()),
    }
}

/// The indexes of a slice (Python's `slice.indices`).
fn indices(
    length: usize,
    start: Option<i64>,
    stop: Option<i64>,
    step: i64,
) -> Step<impl Iterator<Item = usize> + use<>> {
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    if step == 0 {
        return fail("a slice with a step of 0");
    }
    let (lowest, highest) = if step > 0 { (0, length) } else { (-1, length - 1) };
    let bound = |bound: Option<i64>, otherwise| match bound {
        None => otherwise,
        Some(i) if i < 0 => i.saturating_add(length).clamp(lowest, highest),
        Some(i) => i.clamp(lowest, highest),
    };
    let (first, last) = if step > 0 { (lowest, highest) } else { (highest, lowest) };
    let (start, stop) = (bound(start, first), bound(stop, last));
    let positions = std::iter::successors(Some(start), move |i| i.checked_add(step));
    let positions = positions.take_while(move |i| if step > 0 { *i < stop } else { *i > stop });
    Ok(positions.filter_map(|i| usize::try_from(i).ok()))
}
