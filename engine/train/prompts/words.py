"""What prompts are about: topics by field, and the small change of everyday questions. WordNet's nouns join in where it
is installed."""

from __future__ import annotations

import random
from pathlib import Path

from engine.train.prompts.phrases import listed

WORDNET = Path("/usr/share/wordnet/index.noun")
WORDNET_SHARE = 0.3

FIELDS = {
    "nature": listed("""
    tides; coral reefs; migrating birds; honeybees; earthworms; volcanoes; glaciers; the water cycle; hurricanes; fog;
    mushrooms; old forests; desert plants; whales; octopuses; bats; wolves; salmon; mosses; lichens; seeds;
    pollination; soil; rivers and their floods; caves; earthquakes; lightning; snowflakes; the northern lights;
    fossils; dinosaurs; camouflage in animals; hibernation; the food chain; invasive species; wetlands; mangroves;
    owls; ants; spiders; butterflies; sharks; seasons; rainbows; dew; erosion; tree rings; the deep sea; penguins;
    elephants"""),
    "science": listed("""
    gravity; black holes; photosynthesis; DNA; antibiotics; vaccines; the immune system; atoms; chemical bonds; acids
    and bases; magnets; electricity; light and colour; sound waves; heat and temperature; entropy; evolution; cells;
    enzymes; the periodic table; radioactivity; lasers; telescopes; microscopes; the Moon; Mars; comets; the expansion
    of space; plate tectonics; neurons; memory; sleep; hormones; blood; bacteria; viruses; genetics; the scientific
    method; semiconductors; superconductors; batteries; plastics; crystals; friction; pressure; buoyancy; orbits;
    relativity; quantum mechanics; probability"""),
    "technology": listed("""
    the internet; search engines; encryption; passwords; databases; compilers; operating systems; cloud computing;
    smartphones; electric cars; solar panels; wind turbines; heat pumps; 3D printing; robots; drones; machine
    learning; neural networks; chess computers; GPS; satellites; barcodes; touch screens; digital cameras;
    noise-cancelling headphones; open-source software; version control; spam filters; e-mail; video calls; computer
    games; web browsers; social networks; online shopping; backups; computer viruses; hard drives; processors;
    printers; radio; bicycles; elevators; bridges; steam engines; jet engines; refrigerators; washing machines;
    clocks; submarines; elections by computer; smart homes"""),
    "history": listed("""
    the Silk Road; the Roman roads; the printing press; the French Revolution; the fall of Constantinople; the
    Vikings; ancient Egypt; the Maya; the Inca; the Black Death; the Renaissance; the age of sail; the Industrial
    Revolution; the Ottoman Empire; the Ming dynasty; the Meiji Restoration; the Hanseatic League; the Cold War; the
    Space Race; the fall of the Berlin Wall; the women's vote; the abolition of slavery; the Suez Canal; the Great
    Depression; the Marshall Plan; the Library of Alexandria; medieval castles; guilds; the Crusades; the Spanish
    Armada; the Congress of Vienna; the unification of Italy; the independence of India; apartheid; the Magna Carta;
    the gold rush; railways; the telegraph"""),
    "society": listed("""
    inflation; taxes; the minimum wage; pensions; public transport; city planning; affordable housing; recycling;
    climate policy; immigration; free speech; privacy; voting systems; trade unions; school uniforms; homework; remote
    work; the four-day week; advertising; consumer rights; courts and juries; local newspapers; volunteering; ageing
    societies; digital divides; tourism; supply chains; central banks; stock markets; small businesses; crowdfunding;
    fair trade; universal basic income; health insurance; organ donation; animal rights; urban farming; noise in
    cities"""),
    "arts": listed("""
    jazz; the violin; choirs; opera; folk songs; film music; photography; watercolours; street art; sculpture;
    ceramics; architecture; poetry; haiku; science fiction; detective stories; fairy tales; biographies; comic books;
    theatre; ballet; improvised comedy; animation; documentaries; silent films; museums; calligraphy; weaving;
    fashion; typography; perspective in painting; impressionism; the baroque; myths; puppets; board games; magic
    tricks; stage fright"""),
    "everyday life": listed("""
    baking bread; making soup; growing tomatoes; keeping houseplants alive; cleaning a kitchen; ironing shirts;
    removing stains; sharpening knives; brewing coffee; green tea; cheese; chocolate; spices; packing a suitcase;
    camping; hiking; running; swimming; yoga; cycling to work; learning to drive; saving money; paying off debts;
    moving house; painting a wall; fixing a leaking tap; choosing a mattress; sleeping better; getting up early;
    keeping a diary; reading more; learning a language; playing the guitar; knitting; gardening; keeping a dog;
    adopting a cat; feeding birds; birthday parties; weddings; neighbours; gifts; picnics; breakfast; leftovers; a
    first apartment; a flea market"""),
    "work and people": listed("""
    job interviews; a first job; asking for a raise; giving feedback; running a meeting; working in a team; leading
    people; handling conflict; public speaking; negotiating; writing a CV; time management; procrastination; burnout;
    motivation; friendship; shyness; homesickness; trust; apologising; saying no; listening; raising children;
    teenagers; grandparents; long-distance relationships; grief; loneliness; habits; creativity; curiosity; mistakes;
    learning from failure; patience; gratitude; stress before exams; retirement; mentoring; customer service; starting
    a company"""),
}  # fmt: skip

LISTS = {
    "name": listed("""
    Aisha; Bruno; Carla; Dmitri; Elif; Farid; Greta; Hugo; Ines; Jonas; Kaito; Lena; Mateo; Nadia; Oskar; Priya;
    Quentin; Rosa; Samir; Tilda; Umar; Vera; Wanda; Xavier; Yuki; Zoe; Amara; Benedikt; Chiara; Daniel; Emeka; Fiona;
    Goran; Hana; Ibrahim; Julia; Kwame; Lucia; Marek; Noor; Olga; Pablo; Ruth; Sven; Tamar; Ulrike; Viktor; Wei; Yara;
    Zeno"""),
    "place": listed("""
    Lisbon; Nairobi; Kyoto; Montreal; Helsinki; Lima; Tbilisi; Hanoi; Cape Town; Bergen; Kraków; Marrakesh; Jaipur;
    Quito; Wellington; Dublin; Porto; Leipzig; Tallinn; Valparaíso; Accra; Istanbul; Busan; Vancouver; Naples;
    Ljubljana; Oaxaca; Reykjavík; Adelaide; Cairo; Ghent; Bologna; Seville; Zagreb; Kigali; Taipei; Glasgow; Granada;
    Riga; Malmö"""),
    "country": listed("""
    Portugal; Kenya; Japan; Canada; Finland; Peru; Georgia; Vietnam; South Africa; Norway; Poland; Morocco; India;
    Ecuador; New Zealand; Ireland; Estonia; Chile; Ghana; Turkey; South Korea; Italy; Slovenia; Mexico; Iceland;
    Australia; Egypt; Belgium; Spain; Croatia; Rwanda; Latvia; Sweden; Brazil; Austria; Greece; Nepal; Cuba; Jordan;
    Mongolia"""),
    "job": listed("""
    nurse; carpenter; bus driver; librarian; baker; electrician; teacher; farmer; lawyer; translator; astronaut;
    detective; sailor; gardener; journalist; chef; architect; pilot; historian; lighthouse keeper; museum guide;
    geologist; tailor; beekeeper; firefighter; pharmacist; plumber; sculptor; programmer; football coach; violin
    maker; postman"""),
    "figure": listed("""
    a retired pirate; a medieval knight; a grumpy wizard; a patient grandmother; a talking lighthouse; a robot that
    has just been switched on; an explorer of the Antarctic; a ghost who is afraid of people; a time traveller; a
    stage actor; an old sea captain; a detective of few words; a cheerful weather presenter; a dragon who collects
    books; a street musician; a very polite alien; a strict head teacher; a village mayor; a sleepy cat; an optimistic
    inventor"""),
    "reader": listed("""
    a child of eight; a curious teenager; my grandmother; a beginner; a busy manager; an engineer; a class of
    fifteen-year-olds; a new colleague; a tourist; someone who hates jargon; a sceptical friend; first-year students;
    a small-town audience"""),
    "style": listed("""
    a bedtime story; a pirate's log; a news bulletin; a formal letter; a poem; a rap; a sports commentary; a recipe; a
    detective novel; a fairy tale; a dry official notice; an advertisement; a telegram; a stage dialogue; a sermon; a
    haiku; a text message to a friend; a scientific abstract; a nature documentary; a diary entry"""),
    "tone": listed("""
    warm; formal; humorous; matter-of-fact; enthusiastic; gentle; confident; apologetic; dramatic; dry; hopeful; sober"""),
    "language": listed("""
    Python; JavaScript; TypeScript; Java; C; C++; Go; Rust; Ruby; Kotlin; Swift; PHP; Haskell; SQL; Bash; R; Lua; C#;
    Scala; Julia"""),
    "how": listed("""
        in one sentence; in two sentences; in three or four sentences; in your own words; briefly; as bullet points; in a short
        paragraph; for a busy reader; for children; in about fifty words; in simple words"""),
    "number": listed("""
    three; four; five; six; seven; eight; ten; twelve"""),
    "few": listed("""
    two; three; four; five"""),
    "length": listed("""
    in one paragraph; in two or three sentences; in about 100 words; in about 150 words; in about 200 words; in some
    detail; briefly; at length; in simple words; step by step; in plain English; with an example; with two examples"""),
    "object": listed("""
    an old key; a red umbrella; a broken watch; a letter without a sender; a wooden box; a torn map; a silver coin; a
    lost glove; a music box; a lantern; a cracked mirror; a suitcase; a blue bicycle; a violin; a snow globe; a paper
    boat"""),
    "feeling": listed("""
    nervous; lonely; bored; proud; tired; curious; angry; grateful; confused; homesick; hopeful; restless"""),
    "weather": listed("""
    sunny; windy; rainy; foggy; freezing cold; unbearably hot; stormy; strangely quiet"""),
    "day": listed("""
    Monday; Tuesday; Wednesday; Thursday; Friday; Saturday; Sunday"""),
}  # fmt: skip

TOPICS = tuple(topic for field in FIELDS.values() for topic in field)


def wordnet_nouns(path: Path = WORDNET) -> tuple[str, ...]:
    """Nouns of more than three letters that WordNet has met in texts, names included; none where it is not
    installed."""
    if not path.is_file():
        return ()
    nouns = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith(" "):  # the licence at its top
            continue
        fields = line.split()
        met = int(fields[5 + int(fields[3])])  # tagsense_cnt, behind the pointers (wndb(5))
        if met and len(fields[0]) > 3:
            nouns.append(fields[0].replace("_", " "))
    return tuple(nouns)


def topic(rng: random.Random, nouns: tuple[str, ...]) -> str:
    """Something to talk about, of our own lists or of WordNet's nouns."""
    if nouns and rng.random() < WORDNET_SHARE:
        return rng.choice(nouns)
    return rng.choice(TOPICS)
