"""What questions about code and about facts are about."""

from __future__ import annotations

from textwrap import dedent

from engine.train.prompts.phrases import listed


def _snippets(text: str) -> tuple[str, ...]:
    """Pieces of code, each closed by a § but the last."""
    return tuple(dedent(part.strip("\n").rstrip()) for part in text.split("§"))


CODE_WORDS = {
    "task": listed("""
    reverses the words of a sentence; counts the vowels of a text; finds the second largest number of a list; removes
    duplicates but keeps the order; checks whether two words are anagrams; merges two dictionaries; computes the
    Fibonacci numbers up to a limit; sorts people by age and name; finds all prime factors; converts Roman numerals;
    reads a CSV file and adds up a column; rotates a matrix; checks whether brackets are balanced; finds the shortest
    path in a grid; validates an e-mail address; flattens a nested list; guesses a number by halving the range;
    simulates a dice game; counts the words of a file; encrypts a text with a Caesar cipher; groups words by their
    first letter; computes a moving average; renames all files of a folder; downloads a page and lists its links;
    finds the longest common prefix; plays rock, paper, scissors; converts temperatures; prints a calendar month;
    searches a sorted list; schedules tasks by priority"""),
    "do": listed("""
    read a file line by line; parse JSON; sort a list by two keys; make an HTTP request; run two things in parallel;
    catch an error and go on; format a date; split a text at commas; measure time; copy a nested list; generate random
    numbers; write a log file; connect to a database; test for equality of objects; loop over a dictionary; read
    command line arguments; join strings; round numbers"""),
    "concept": listed("""
    recursion; a hash table; a closure; inheritance; a linked list; a binary tree; a queue; dynamic programming;
    pointers and references; garbage collection; a race condition; an iterator; generics; a design pattern such as
    observer; unit testing; lazy evaluation; an interface; exceptions; immutability; big O notation; a stack overflow;
    dependency injection; async and await; a decorator"""),
    "snippet": _snippets("""
        def f(n):
            return 1 if n < 2 else n * f(n - 1)§
        total = 0
        for i in range(10):
            if i % 2:
                total += i * i
        print(total)§
        def g(words):
            found = {}
            for word in words:
                found[len(word)] = found.get(len(word), 0) + 1
            return found§
        def h(a, b):
            while b:
                a, b = b, a % b
            return a§
        names = ["Ann", "Bob"]
        for i in range(len(names) + 1):
            print(names[i])§
        def mean(values):
            return sum(values) / len(values)§
        with open("data.txt") as file:
            lines = [line.strip() for line in file if line.strip()]
        print(max(lines, key=len))§
        def find(xs, x):
            low, high = 0, len(xs)
            while low < high:
                mid = (low + high) // 2
                if xs[mid] < x: low = mid
                else: high = mid
            return low§
        class Stack:
            def __init__(self, items=[]):
                self.items = items
            def push(self, item):
                self.items.append(item)§
        squares = [x * x for x in range(20) if x % 3 == 0]"""),
    "pattern": listed("""
    a date such as 31.12.2024; a German postcode; a time of day; a hexadecimal colour; a word in capitals; a phone
    number; a price in euros; a version number; an empty line"""),
    "thing": listed("""
    a bank account; a shopping cart; a library of books; a chess board; a playlist; a to-do list; a phone book; a
    parking garage; a recipe collection; a train timetable"""),
    "query": listed("""
    lists customers without orders; counts orders by month; finds the three best-selling products; joins employees
    with their managers; deletes duplicate rows; shows the average price by category; finds students with more than
    five courses; adds a column for the delivery date; lists cities with more than ten customers"""),
}  # fmt: skip

FACT_WORDS = {
    "book": listed("""
    Moby-Dick; Don Quixote; Jane Eyre; The Trial; Dracula; Frankenstein; War and Peace; Treasure Island; The Odyssey;
    Emma; Faust; Walden; Les Misérables; The Jungle Book; Peter Pan; Hamlet; Middlemarch; Dead Souls; The Divine
    Comedy; Gulliver's Travels; Robinson Crusoe; The Wizard of Oz; Heidi; Pinocchio; The Time Machine; Great
    Expectations; Candide; Ulysses; The Magic Mountain; Black Beauty"""),
    "invention": listed("""
    the telescope; the bicycle; dynamite; the zipper; the piano; the thermometer; the fridge; the steam engine; paper;
    gunpowder; the compass; the typewriter; the light bulb; the parachute; penicillin; the safety pin; the microscope;
    the telephone; the sewing machine; the saxophone; the ballpoint pen; the microwave oven; the transistor; the
    stethoscope; the tin can; the elevator; braille; the pacemaker; the battery; porcelain"""),
    "event": listed("""
    the Thirty Years' War; the Boston Tea Party; the Battle of Hastings; the first Moon landing; the Great Fire of
    London; the eruption of Vesuvius; the Spanish Civil War; the first World Cup; the Prague Spring; the October
    Revolution; the Boxer Rebellion; the Battle of Marathon; the Great Exhibition; the Peace of Westphalia; the Dust
    Bowl; the Suez Crisis; the Berlin Airlift; the first Olympic Games of modern times; the Krakatoa eruption"""),
    "person": listed("""
    Marie Curie; Johannes Kepler; Ada Lovelace; Simón Bolívar; Clara Schumann; Ibn Battuta; Galileo; Florence
    Nightingale; Alexander von Humboldt; Rosa Luxemburg; Confucius; Cleopatra; Nikola Tesla; Frida Kahlo; Charles
    Darwin; Hypatia; Leonhard Euler; Genghis Khan; Rumi; Sitting Bull; Emmy Noether; Louis Pasteur; Amelia Earhart;
    Hannibal; Mozart; Vermeer; Harriet Tubman; Carl Linnaeus; Isaac Newton; Sappho"""),
    "element": listed("""
    gold; iron; helium; oxygen; copper; mercury; sodium; carbon; tin; neon; uranium; silver; zinc; iodine; chlorine;
    lead; nickel; calcium; tungsten; sulphur"""),
    "animal": listed("""
    badgers; sloths; pandas; crocodiles; flamingos; hedgehogs; sea turtles; moles; kangaroos; foxes; beavers; otters;
    giraffes; lynxes; storks; squid; camels; cranes; seals; toads"""),
    "sport": listed("""
    handball; cricket; curling; water polo; volleyball; fencing; judo; rugby; table tennis; hockey; badminton; rowing;
    archery; baseball; lacrosse; basketball"""),
    "noun": listed("""
    serendipity; alibi; oxymoron; quorum; nostalgia; altruism; paradox; ferry; hypothesis; ox; crisis; lexicon; irony;
    embargo; phenomenon; estuary; cactus; zeitgeist; larva; appendix"""),
}  # fmt: skip
