"""Word problems of grade school: stories with names, things and numbers that fit each other, of one to four steps."""

from __future__ import annotations

import random

from engine.train.prompts.phrases import listed, pick
from engine.train.prompts.words import LISTS

WORDS = {
    **LISTS,
    "things": listed("""
    apples; stickers; marbles; pencils; books; stamps; shells; cards; tickets; eggs; cookies; balloons; toy cars;
    buttons; coins; oranges; flowers; photos; candles; bottles; notebooks; tomatoes; postcards; muffins; chairs;
    tiles; lemons; beads"""),
    "shop": listed("""
    market; bakery; bookshop; garden centre; toy shop; kiosk; farm stand; hardware shop; school fair; flea market"""),
    "dear": listed("""
    a bicycle; a tent; a guitar; a winter coat; a camera; a desk; a pair of skis; a phone; a trip to the sea"""),
    "relative": listed("""
    sister; brother; cousin; grandfather; aunt; best friend; neighbour; teacher; roommate"""),
    "container": listed("""
    boxes; bags; jars; baskets; shelves; crates; drawers; packets"""),
    "chore": listed("""
    mowing lawns; walking dogs; babysitting; washing cars; tutoring; delivering newspapers; picking cherries"""),
    "vehicle": listed("""
    A train; A bus; A cyclist; A truck; A ferry; A hiker"""),
    "crop": listed("""
    corn; wheat; potatoes; strawberries; pumpkins; beans; carrots"""),
    "money": listed("""
    dollars; euros; pounds; francs; crowns"""),
    "ask": listed("""
    ; ; ; ; Show your work.; Explain each step.; Think step by step.; Please solve it step by step.; Give the number
    at the end.; Explain how you got the answer.; Check your answer, too.; Write down the calculation."""),
    "start": listed("""
    Solve this:; Here is a problem.; Help me with my homework:; A puzzle for you:; Can you work this out?; Word
    problem:"""),
}  # fmt: skip

STORIES = listed("""
    {name1} has {a} {things1}. {name2} gives [her|him|them] {b} more, and then [half of them|a third of them] [are
    lost|are given away]. How many {things1} does {name1} have [now|left]?; {name1} buys {few} {things1} for {b}
    {money} each and {a} {things2} for {c} {money} each at the {shop}. How [much|many {money}] does {name1}
    [pay|spend] in [total|all]?; There are {a} {container} with {b} {things1} in each. {name1} takes out {c}
    {things1}[ and puts back {few}|]. How many {things1} are left?; {name1} is {a} years old. [Her|His] {relative1} is
    {few} times as old. How old will the {relative1} be in {c} years?; {vehicle} covers {b} kilometres in {few} hours.
    At the same speed, how far does it get in {c} hours?; {name1} earns {c} {money} an hour by {chore} and works {few}
    hours a day. How many days does [it take|{name1} need] to save {d} {money} for {dear}?; {dear} costs {d} {money}.
    During a sale the price falls by {p} percent, and {name1} has a voucher for {b} {money}. What does {name1} pay?; A
    farmer plants {a} rows of {crop} with {b} plants in each row. {p} percent of them [are eaten by snails|do not
    survive the winter]. How many plants [remain|are left]?; {name1} reads {b} pages on {day1}, twice as many on
    {day2} and {c} fewer than that on {day3}. How many pages are that together?; In a class of {e} children, {p}
    percent [ride a bicycle|take the bus] to school and the others walk. How many children walk?; A recipe for {few}
    people needs {d} grams of flour. How much flour does {name1} need for {c} people?; {name1}, {name2} and {name3}
    share {d} {money} so that {name1} gets twice as much as {name2}, and {name3} gets {b} {money}. How much does
    {name2} get?; A tank holds {d} litres. Every [hour|minute] {c} litres flow in and {few} litres leak out. How long
    does it take until the empty tank is full?; {name1} [runs|swims|cycles] {b} minutes on weekdays and {a} minutes on
    each day of the weekend. How many hours is that in {few} weeks?; The {shop} sells {things1} in packs of {c}.
    {name1} needs {d} {things1} for a party[, and already has {b}|]. How many packs must [she|he|{name1}] buy?; A
    ticket for the museum costs {b} {money} for adults and half as much for children. A group of {a} adults and {c}
    children goes in. What do they pay together?; {name1} had {d} {money}. [She|He] spent {b} {money} on {things1},
    {p} percent of the rest on {dear}, and saved the remainder. How much was saved?; A wall is {a} metres long and
    {few} metres high. One tin of paint covers {c} square metres and costs {b} {money}. What does the paint cost?;
    {name1} and {name2} [collect|count|pack] {things1}. {name1} manages {a} in an hour, {name2} {c} more than that.
    How many do they manage together in {few} hours?; On {day1} the {shop} sold {b} {things1}. On {day2} it sold {p}
    percent more. How many {things1} were sold on both days?; Two towns are {d} kilometres apart. {name1} starts in
    one of them and drives at {b} kilometres an hour; {name2} starts in the other at {e} kilometres an hour. After how
    many hours do they meet?; {name1} bakes {a} trays of {c} cookies. [Her|His] {relative} eats {few}, and the rest is
    packed into bags of {b}. How many full bags are there, and how many cookies are left over?; The average of {few}
    test results is {e}. {name1} scores {b} in the next test. What is the average now?; {name1} pays {d} {money} rent
    a month, and it rises by {p} percent. How much more does [she|he|{name1}] pay in a year?; A rope of {d}
    centimetres is cut into two parts, one of which is {b} centimetres longer than the other. How long is each part?;
    A library has {d} books. {p} percent are novels, {b} are cookbooks, and the rest are about history. How many are
    about history?; {name1} needs {b} minutes to walk to school and {name2} needs {few} times as long. Both must be
    there at eight o'clock. At what time must {name2} leave at the latest?""")

PLAIN = listed("""
    What is {a} times {b}[ plus {c}|]?; Calculate {d} - {b} * {c}.; What is {p} percent of {d}?; How many seconds are
    there in {b} minutes?; Solve for x: {c}x + {a} = {d}.; What is {d} divided by {c}, and what remains?; Is {d}{c} a
    prime number? Explain.; A rectangle has sides of {a} and {b} centimetres. What are its area and its perimeter?;
    Convert {b} kilometres an hour to metres a second.; What is the next number: {c}, {a}, {b}, ...? Explain your
    idea.; Which is larger, {few} sevenths or {c} tenths?; Round {d}.{a} to the nearest ten.; Simplify the fraction
    {a}/{d}.; Find two numbers whose sum is {b} and whose difference is {c}.; What is the square of {a}?""")


def problem(rng: random.Random) -> str:
    """A story seven times out of eight; else a bare calculation."""
    numbers = {
        "a": rng.randint(3, 30), "b": rng.choice((rng.randint(6, 40), 5 * rng.randint(2, 20))), "c": rng.randint(2, 15),
        "d": rng.choice((10 * rng.randint(9, 90), 50 * rng.randint(3, 40))), "e": 4 * rng.randint(5, 12),
        "money": rng.choice(WORDS["money"]), "p": rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75)),
    }  # fmt: skip
    text = pick(rng, PLAIN if rng.random() < 0.125 else STORIES, WORDS, **numbers)
    text = text[0].upper() + text[1:]
    form = pick(rng, ("{text}", "{text}", "{text} {ask}", "{text} {ask}", "{start} {text}"), WORDS, text=text)
    return form.strip()
