//! A template's syntax tree. Text is borrowed from the template.

use super::value::Value;
use std::rc::Rc;

/// The nodes between an opening and a closing tag.
pub type Body<'a> = Vec<Node<'a>>;

/// A node of a template, and the line on which it begins.
#[derive(Debug)]
pub struct Node<'a> {
    pub line: usize,
    pub kind: Kind<'a>,
}

#[derive(Debug)]
pub enum Kind<'a> {
    Data(&'a str),
    Print(Expression<'a>),
    /// Conditions with their bodies, and the `else` body.
    If(Vec<(Expression<'a>, Body<'a>)>, Body<'a>),
    For(Rc<Loop<'a>>),
    Set(Target<'a>, Expression<'a>),
    /// `{% set x | filter %}…{% endset %}`
    SetBody(Target<'a>, Vec<Postfix<'a>>, Body<'a>),
    Do(Expression<'a>),
    Macro(&'a str, Rc<Function<'a>>),
    /// `{% call(x) f() %}…{% endcall %}`: the body is the result of `caller(x)`.
    Call(Rc<Function<'a>>, Expression<'a>),
    Filter(Vec<Postfix<'a>>, Body<'a>),
    With(Vec<(Target<'a>, Expression<'a>)>, Body<'a>),
    /// `block`: a body with its own scope.
    Scope(Body<'a>),
}

#[derive(Debug)]
pub struct Loop<'a> {
    pub target: Target<'a>,
    pub over: Expression<'a>,
    pub condition: Option<Expression<'a>>,
    pub recursive: bool,
    pub body: Body<'a>,
    pub otherwise: Body<'a>,
}

/// The target of an assignment.
#[derive(Debug)]
pub enum Target<'a> {
    Name(&'a str),
    /// An attribute of a namespace.
    Attribute(&'a str, &'a str),
    Several(Vec<Target<'a>>),
}

/// A macro, or the body of a `call`.
#[derive(Debug)]
pub struct Function<'a> {
    pub name: &'a str,
    /// The parameters' names and default values.
    pub parameters: Vec<(&'a str, Option<Expression<'a>>)>,
    pub body: Body<'a>,
}

#[derive(Debug)]
pub enum Expression<'a> {
    Literal(Value<'a>),
    Name(&'a str),
    List(Vec<Expression<'a>>),
    Tuple(Vec<Expression<'a>>),
    Dict(Vec<(Expression<'a>, Expression<'a>)>),
    /// Operations of the same precedence, left to right.
    Chain(Box<Expression<'a>>, Vec<(Operator, Expression<'a>)>),
    Concat(Vec<Expression<'a>>),
    And(Vec<Expression<'a>>),
    Or(Vec<Expression<'a>>),
    Not(Box<Expression<'a>>),
    Negative(Box<Expression<'a>>),
    Positive(Box<Expression<'a>>),
    Compare(Box<Expression<'a>>, Vec<(Comparison, Expression<'a>)>),
    Conditional(Box<Conditional<'a>>),
    Postfix(Box<Expression<'a>>, Vec<Postfix<'a>>),
}

#[derive(Debug)]
pub struct Conditional<'a> {
    pub condition: Expression<'a>,
    pub then: Expression<'a>,
    pub otherwise: Option<Expression<'a>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operator {
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Comparison {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}

/// A postfix operation on an expression.
#[derive(Debug)]
pub enum Postfix<'a> {
    Attribute(&'a str),
    Item(Box<Expression<'a>>),
    Slice(Box<[Option<Expression<'a>>; 3]>),
    Call(Arguments<'a>),
    Filter(&'a str, Arguments<'a>),
    Test { name: &'a str, arguments: Arguments<'a>, negated: bool },
}

#[derive(Debug, Default)]
pub struct Arguments<'a> {
    pub positional: Vec<Expression<'a>>,
    pub named: Vec<(&'a str, Expression<'a>)>,
    /// `*list` and `**mapping`.
    pub rest: Option<Box<Expression<'a>>>,
    pub named_rest: Option<Box<Expression<'a>>>,
}
