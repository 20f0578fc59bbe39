"""How people put their wishes into words, in the grammar of phrases.py, by kind of wish."""

from __future__ import annotations

from engine.train.prompts.phrases import listed

ADVICE = listed("""
    [I feel|I am] {feeling} [lately|since {day}|because of {topic}]. What [can|should] I do?; How do I get better at
    {topic}?; [What should I know|What matters most] before I [start with|spend money on|get into] {topic}?; Is it
    worth learning about {topic} [these days|at my age|as a {job}]?; I am a {job} and want to [become a {job}|learn
    about {topic}|move to {place}]. [Where do I start?|Any advice?|How realistic is that?]; What are
    [common|typical|expensive] mistakes with {topic}[, and how do I avoid them|]?; My {job} friend [thinks|says]
    {topic} is a waste of time. [How do I answer|Is that fair]?; I have [one weekend|{number} days|an evening] in
    {place}. What should I [see|do|eat]?; How can I explain my interest in {topic} to [my parents|my boss|my
    friends]?; [Could you help me|Help me] plan [a weekend|a week|a party|a lesson|a talk] about {topic} {length}.;
    How much time does one need for {topic}?; What would a {job} [say|think|do] about {topic}?; [Can you recommend|Do
    you know] a good way to [learn|practise|remember] {topic}?; [What is a good|Suggest a] daily routine for [a
    {job}|someone interested in {topic}|parents of small children].; How do I talk about {topic} with [a teenager|my
    grandmother|strangers]?""")

EXPLANATION = listed("""
    Explain {topic} {length}.; [Explain|Describe] {topic} to {reader}.; How [does|do] {topic} work?; What [is|are]
    {topic}[, and why does it matter|]?; Why is {topic} important[ for {topic2}|]?; [I never understood|I keep reading
    about] {topic}. [Can you|Could you] explain [it|the basics][ {length}|]?; What causes {topic}, and what follows
    from it?; Tell me [something|more] about {topic}.; [Give me|Write] an [introduction|overview] to {topic} for
    {reader}, {length}.; What is the connection between {topic} and {topic2}?; How has {topic} changed [over time|in
    the last hundred years|since the war]?; What are the [main parts|key ideas|open questions] of {topic}?; What do
    people often get wrong about {topic}?; Explain the difference {topic} made to [daily life|science|the
    economy|{country}].; Imagine you teach {topic} to {reader}. What would you say first?; Why do [some|so many]
    people [like|fear|ignore] {topic}?; What would happen without {topic}?; What is {topic}?; {topic}: what should I
    know?""")

WRITING = listed("""
    Write a [short story|fairy tale|scene|monologue] about {object} and a {job} in {place}[. Keep it under 300 words|,
    in a {tone} tone|].; Write a [letter|{tone} e-mail] to [a {job}|my landlord|the mayor of {place}|an old friend]
    about {topic}.; Write a blog post [on|about] {topic} for {reader}[, with {few} headings|, in a {tone} voice|].;
    Compose a poem about {topic} [in {number} lines|that does not rhyme|that rhymes|for {reader}].; Draft a speech for
    {name}, a {job}, on [the last day of work|the opening of a library|a wedding].; Write a news [report|article]
    about {topic} in {place}[, with quotes from a {job} and a resident|, {length}|].; Start a story with {object}
    [found on a {weather} {day}|in an empty train to {place}|on a beach].; Write a product description for [a device
    that helps with {topic}|{object}].; Write a dialogue between a {job} and a {job2} [who disagree about|who meet
    because of] {topic}.; Write a review of [a book|a restaurant|an exhibition|a course] about {topic} [that is mostly
    positive|by a disappointed visitor|in a {tone} tone].; Write [an opinion piece|a short essay] [for|against]
    {topic}, {length}.; [Draft|Write] a [{tone} |]message to {name} that [cancels a meeting about {topic}|invites to a
    party on {day}|says thank you for {object}|explains why I am late].; Describe [a {weather} morning|a market|an
    empty house|a street] in {place} {length}.; Write the opening of a novel in which a {job} [loses|finds|steals]
    {object}.; Write [a cover letter|a short profile|a job advertisement] for a {job} in {place}.; Write {few}
    [slogans|titles|headlines] for [a campaign|a magazine|a podcast] about {topic}.; Write song lyrics about being
    {feeling} in {place}.; Write a [guide|leaflet] for visitors who care about {topic}, in a {tone} tone.; Tell me a
    story about {figure} and {object}.""")

LIST = listed("""
    [List|Name|Give me] {number} [facts about|reasons for|uses of|examples of|questions about|ideas for] {topic}.;
    What are the {few} most important [points|dates|people|rules] in {topic}?; Make a [packing|shopping|check] list
    for [a trip to {place}|a weekend of {topic}|a {job}].; [Brainstorm|Think of] {number} [names|titles|themes] for [a
    café|a podcast|a school project|a band] that has to do with {topic}.; List the [steps|tools|skills] [needed|you
    need] for {topic}[ in a table|, one a line|].; Pros and cons of {topic}[ as a table|, please|]?; [Give|Suggest]
    {number} [words|verbs|adjectives] that describe {topic}.; Write {number} quiz questions on {topic} with answers.;
    Name {number} [books|films|places|foods] [from|in] {country} and say a sentence about each.; Make a timetable for
    a day of {topic} in {place}.""")

CODE = listed(r"""
    Write a [{language} function|function in {language}] that {task}[. Add comments|. Handle empty input|. Explain how
    it works| and show how to call it|].; [How do I|What is the best way to] {do} in {language}?; Write a
    [small|complete] {language} program that {task}[ and a test for it|].; [Explain|Describe|Illustrate] {concept} in {language}[, with an example|]; What does this code
    do?\n```python\n{snippet}\n```; [Find the mistake in|Improve|Add comments to|Rewrite in {language}] this
    code:\n```python\n{snippet}\n```; Explain {concept} in {language} to {reader}.; Write a regular expression that
    matches {pattern}, and explain it.; Write a class in {language} for {thing} with methods to [add, remove and find
    entries|load and save it|print it nicely].; Write an SQL query that {query}.; Write unit tests for a function that
    {task}.; How fast is an algorithm that {task}? Explain the complexity.; Convert this pseudocode to {language}: for
    each item of {thing}, [skip it if empty|count it|compare it with the next], then {do}.; Create a simple web page
    with [a form|a button|a table] about {topic} in HTML and CSS.""")
ROLE_PLAY = listed("""
    [Play|Be|Speak as] {figure}. [I am {name}, and I ask you|My question is]: what do you think of {topic}?; You are a
    {job} in {place}. [A tourist|A child|A journalist] asks you about {topic}. [Answer in character.|What do you
    say?|]; [Let us play|Let's play] a game: you are {figure} and I am a {job}. You [begin|speak first].; Answer like
    {figure}: why is it {weather} today?; Interview {figure} about {topic}, with {few} questions and answers.; Be my
    [English|German|Spanish|history|physics] teacher and ask me {few} questions about {topic}.""")

FACT = listed("""
    Who [wrote|is the author of] {book}?; When was {book} [first |]published?; What is {book} about?; Who
    [invented|came up with] {invention}?; When was {invention} invented?; Where was {invention} first used?; When did
    {event} [begin|end|happen|take place]?; Where did {event} take place?; Who [took part in|was behind] {event}?;
    What is the capital of {country}?; What language is spoken in {country}?; How many people live in {country}?; What
    is the [largest|oldest|second largest] city [of|in] {country}?; Who was {person}?; When was {person} born?; Where
    did {person} [live|die|grow up]?; What is {person} [famous|known] for?; What is the chemical symbol for
    {element}?; Who discovered {element}?; What is {element} used for?; Where is {place} [located|]?; What river flows
    through {place}?; How far is it from {place1} to {place2}?; What is {place} famous for?; [What do|Where do|How
    long do] {animal} [eat|live]?; How many players are in a team in {sport}?; Where does {sport} come from?; When did
    {sport} become an Olympic sport?; What does the word {noun} mean?; What is the [longest river|highest
    mountain|national dish|currency|flag] of {country}?; In what year did {country} [become independent|join the
    United Nations]?; Which countries border {country}?; What is the plural of {noun}?; Who was the first {job} to
    become famous?; What came first, {invention1} or {invention2}?""")
REASONING = listed("""
    {name1} is taller than {name2}, and {name3} is shorter than {name2}. Who is the [tallest|shortest]? Explain.;
    {name1} [always lies|always tells the truth] and says that {name2} took {object}. What follows?; If all {topic}
    were [useful|dangerous|old] and nothing [useful|dangerous|old] were cheap, could {topic} be cheap?; Why might
    {name}, a {job}, [go to work at night|carry {object}|be {feeling} on a {weather} {day}]? Give {few} explanations.;
    {name1}, {name2} and {name3} sit in a row. {name2} does not sit at an end. {name1} sits on the left of {name3}.
    Who sits where?; Yesterday was {day}. What day is it in {number} days?; A clock is {number} minutes slow and shows
    noon. What time is it? Explain.; What would happen if [nobody slept|the Moon vanished|money were abolished|{topic}
    did not exist|everyone lived to be 200]?; Is it [right|fair|wise] to [lie to a friend|ban cars|tax {topic}|forget
    {topic}]? Argue both sides.; {name} has {object} but no {topic}. What is missing in this sentence to make sense?;
    There are {number} people in a room and each shakes hands with every other once. How many handshakes are there?;
    Which does not belong: {topic}, {topic2}, {object}? Say why.; Estimate how many [bakers|pianos|bicycles|dogs]
    there are in {place}. Show how you think.; A {job} says: "{topic} caused {topic2}." How would you test that
    claim?; Draw conclusions: every {job} in {place} knows {name1}, yet {name2} does not know {name1}. Can {name2} be
    a {job} in {place}?; {name1} is the [mother|father|sister] of {name2}, and {name2} is the [mother|father] of
    {name3}. How are {name1} and {name3} related?""")

COMPARISON = listed("""
    Compare {topic} and {topic2}[ {length}| in a table| for {reader}|].; What is [better|more useful|harder to learn]:
    {topic} or {topic2}?; [What is|Explain] the difference between {topic} and {topic2}[?|.| to {reader}.]; How is
    life in {place1} different from life in {place2}?; Which is the better [job|choice for a shy person]: {job1} or
    {job2}?; Compare {language1} with {language2} for beginners.; Should one visit {country1} or {country2} [in
    winter|with children|on a small budget]?; What do {topic} and {topic2} have in common?""")

SMALL_TALK = listed("""
    [Hi|Hello|Hey|Good morning|Good evening][!|, how are you?| there!] [It is {weather} in {place}.|I am {feeling}
    today.|What are you up to?|My name is {name}.|I just read about {topic}.|Can we talk about {topic}?|I have a
    question about {topic}.]; Tell me a joke about [a {job}|{topic}].; [Do you like|What do you think of|Have you
    heard of] {topic}?; What [should I cook|can I do] on a {weather} {day}?; Thanks[ a lot|]! [And what about
    {topic}?|That helped. One more question: {topic}?]; Surprise me with [a fact about|a question about] {topic}.;
    What is your favourite [book|place in {country}|word]?; [Guess what|You will not believe this]: {name}, my {job}
    neighbour, [found|lost|bought] {object} [on {day}|in {place}].; I cannot sleep. Tell me something
    [calm|boring|nice] about {topic}.; [Good night|Bye]! I am off to {place} tomorrow.""")

SUMMARY = listed(r"""
    [Summarise|Summarize|Sum up] [this|the text|the following text|the text below] {how}[:|.]\n\n{passage};
    {passage}\n\n[Summarise|Summarize] [the above|that|this text] {how}.; [What is the main point of this text?|What
    are the key points here?|Give me the gist of this:|In brief, please:|Shorten this to {few}
    sentences:]\n\n{passage}; {passage}\n\nIn short: what does this say?; [Please write|Write] [a short summary|an
    abstract|a headline and a summary] of [this|what follows]:\n{passage}; [I have no time to read this. What does it
    say?|Condense this article.] {passage}; Summary [in {few} bullet points|for {reader}]:\n\n{passage}; Here is [a
    report|an article|a text]. [Tell {reader} what it says.|Write down its most important statements.]\n\n{passage};
    Read this and summarise it {how}: {passage}""")

PASSAGE_QUESTION = listed("""
    What does the text say about {about}?; Who or what is {about}?; Why is {about} mentioned?; What do we learn about
    {about}?; How does {about} fit into the rest?; When [does|did] {about} come up, and what happens?; What is {about}
    [here|in this context]?; What role does {about} play?; Is {about} described as [good|bad|important|new]?; Where is
    {about} mentioned, and in what connection?; Which facts are given about {about}?; what is {about}; who is {about}""")

QUESTIONS = listed(r"""
    {passage}\n\n{question}; [Read this:|Here is a text.|Text:] {passage}\n\n[Question: |]{question}; {question} [Use
    only this text:|Answer from the text.|The text:]\n\n{passage}; [Answer|Please answer] the question [from|with the
    help of] the text[ in one sentence|].\n\nText: {passage}\n\nQuestion: {question}; "{passage}"\n\nAccording to
    this, {question}; {passage}\n\nQ: {question}\nA:; After reading the text, answer: {question}\n\n{passage};
    {passage}\nWrite {few} questions about this text and answer them.""")

SEVERAL_PASSAGES = listed(r"""
    [Use only the following passages to answer.|Answer from these passages alone.|Answer with the help of the passages
    below.|Here is what a search found. Use it to answer the question.]\n\n{passages}\n\n[Question: |]{question};
    {passages}\n\n[Based on the passages above: |With these sources in mind: |From what is written above: ]{question};
    Question: {question}\n\n{passages}\n\n[Answer in one or two sentences.|Answer, and name the number of the passage
    that you used.|Give a complete answer.]; I found these texts:\n{passages}\n\n{question} [If they do not say, say
    so.|Be brief.|Explain.|]; Context:\n{passages}\n\nQuestion: {question}\nAnswer:; {passages}\n\nWhich of these
    texts [is the most useful|say something] about this: {question}""")

REWRITING = listed(r"""
    Rewrite this [in a {tone} tone|for {reader}|as {style}|in simpler words|without adjectives|in the past tense|with
    shorter sentences]:\n\n{passage}; {passage}\n\n[Make this sound {tone}.|Turn this into {style}.|Correct the style
    and the spelling.|Say the same in half as many words.]; [Proofread|Polish|Improve] this text:\n{passage};
    [Paraphrase|Put in other words]: {passage}; Turn this text into [a dialogue|a list|questions and answers|a table|a
    headline and three sentences]:\n\n{passage}; Continue this text[ with two more paragraphs| in the same
    style|]:\n\n{passage}""")

EXTRACTION = listed(r"""
    [List|Extract|Find] all [names|places|dates and numbers|nouns|verbs|organisations|adjectives] [in|from] this
    text[, one a line| as JSON|, separated by commas|]:\n\n{passage}; {passage}\n\n[Which people and places are named
    above?|Make a table of the facts in this text.|List the key terms with a short definition of each.]; Fill in as
    JSON with the keys "who", "what", "where" and "when":\n{passage}; Give this text [a title|five keywords|a title
    and three tags]:\n\n{passage}; Quote the sentence that matters most in this text: {passage}; How many sentences
    does this text have, and what is the longest about?\n\n{passage}""")

CLASSIFICATION = listed(r"""
    Is each of these [positive, negative or neutral|a fact or an opinion|about the past or the present|formal or
    informal]?\n{lines}; [Sort|Classify] these sentences by [topic|mood|how certain they are|difficulty] [and give a
    reason for each|in a table|]:\n{lines}; {lines}\n\n[Rate how clear each sentence is, from 1 to 5.|Which of these
    is the odd one out?|Label each with one word.]; Put these [in a sensible order|into two groups] and explain
    why:\n{lines}; Correct the grammar where needed and leave the rest as it is:\n{lines}""")

TRANSLATION = listed(r"""
    [Translate|Please translate] [this|the following|this sentence|this text] [from {out_of} |][into|to] {into}:
    {text}; {text}\n\n[Translate this into {into}.|What does this mean in {into}?|In {into}, please.]; [How do you say
    this in {into}?|What is this in {into}?|Put this into {into}:|{out_of} to {into}:|Say it in {into}:] {text}; Give
    me [a good|an accurate|a natural] {into} translation of: {text}; I got this in {out_of}. [What does it say|Can you
    translate it to {into}]? "{text}"; Translate from {out_of} into {into}.\n\n{text}; [{out_of}|Original]:
    {text}\n{into}:; {text} - [translate|in {into}?|what is that in {into}?]; Translate into {into} and explain the
    difficult words: {text}; [You are|Be] a translator from {out_of} into {into}. The text is: {text}""")

FOLLOW_UP = listed("""
    [Make it|Can you make that] [shorter|longer|simpler|more formal|funnier|more precise].; Now [the same|write it|say
    it] as {style}.; [Rewrite|Repeat] that for {reader}.; [Give|Can you give] an example[ from daily life| of that|]?;
    Explain the [first|second|last] [point|part|sentence] [again|in more detail].; [Summarise|Sum up] [your
    answer|that] in [one sentence|three words|{number} words].; [Why|Are you sure]?; What [did you leave out|is the
    weak point of this|would a {job} say to that]?; [Turn|Put] that into [a table|a list|a poem|bullet points|{few}
    steps].; Translate your answer into [German|French|Spanish|Italian].; [And|OK, and] what about {topic}?; How does
    this relate to {topic}?; [Continue|Go on].; Now argue the opposite.; Write it again in a {tone} tone.;
    [Which|What] part of that matters most[ for a {job}|]?; Can you say that without [difficult words|the letter
    e|lists]?; Give it a title[ and {few} keywords|].; Ask me {few} questions about that.; How would you explain it to
    {reader}?""")

FOLLOW_UP_OF = {
    "code": listed("""
    Now in {language}.; Add [error handling|comments|tests|type hints].; What is its complexity?; Can it be
    [faster|shorter|more readable]?; How do I run this?; What happens with empty input?; Explain it line by line.;
    Make it work for [negative numbers|very large files|several users]."""),
    "arithmetic": listed("""
    [Check|Verify] that.; What if all numbers were [twice|half] as large?; Explain the [first|last] step.; Is there a
    shorter way?; Make up a similar problem.; Write it as one equation.; What if it were {number} more?"""),
    "translation": listed("""
    [Make it|Can you make it] [more formal|more natural|shorter].; What does the [first|last] word mean?; Now into
    [French|Spanish|Italian|Dutch].; Give another translation.; Is the word order right?; Explain the grammar."""),
    "writing": listed("""
    Give it [a happy|a sad|an open|a surprising] ending.; Add a [dialogue|character|description of {place}].; Rewrite
    it from the view of {figure}.; Now use only short sentences.; Replace the main character with a {job}.; Continue
    the story."""),
    "role play": listed("""
    And what do you do on {day}s?; Tell me about your [childhood|biggest mistake|best friend].; What do you think of a
    {job}?; Stay in character: do you like {topic}?; What are you afraid of?"""),
    "fact": listed("""
    [And|] [why|when|where] exactly?; How do we know that?; Tell me more.; And in {country}?; Who else?; Is that still
    true [today|]?"""),
    "summary": listed("""
    Which [names|numbers] are in the text?; Shorter[, please|].; What did the summary leave out?; Give the text a
    headline.; Who might have written it?; What happens next?"""),
    "several passages": listed("""
    Which passage says so?; Do the passages agree?; What else is in the [first|second] passage?; Quote the sentence.;
    And what do they not say?"""),
}  # fmt: skip
