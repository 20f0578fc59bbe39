"""Sentences to translate, composed in their own language: whole patterns with slots whose words fit them in gender and
case."""

from __future__ import annotations

import random

from engine.train.prompts.phrases import listed, pick

GERMAN = listed("""
    Der Bürgermeister von {ort} hat am {tag} {plan} angekündigt; Nach Angaben der Polizei wurde bei dem Unfall in
    {ort} niemand verletzt; [Die Regierung|Die Opposition|Der Verband] [will|möchte] {plan} noch in diesem Jahr {tun}
    .; {wer} [sagte|erklärte|betonte] am {tag} , dass {plan} [viel Geld|mehrere Millionen Euro|zu viel Zeit] kosten
    werde; Der Trainer [zeigte sich|war] nach dem Spiel gegen {ort} [zufrieden|enttäuscht|überrascht] , obwohl seine
    Mannschaft {tor} geschossen hatte; Im vergangenen Jahr stieg die Zahl der {leute} in {ort} um {zahl} Prozent .;
    [Viele|Immer mehr|Nur wenige] {leute} [fahren|reisen] im {monat} nach {ort} , weil [das Wetter dort besser ist|die
    Preise gesunken sind|es dort ruhiger ist] .; Wenn es am {tag} regnet , [bleiben wir zu Hause|gehen wir ins
    Museum|fällt das Fest aus] .; Ich habe {wen} seit {zahl} Jahren nicht mehr gesehen , aber wir schreiben uns [jede
    Woche|manchmal|fast jeden Monat] .; Können Sie mir bitte sagen , [wie ich zum Bahnhof komme|wann der nächste Zug
    nach {ort} fährt|wo man hier gut essen kann] ?; Das [Hotel|Restaurant|Museum] liegt {lage} und ist {wie} , [aber
    leider etwas teuer|und das Personal ist sehr freundlich|nur im {monat} ist es geschlossen] .; Bevor {wer} nach
    {ort} zog , [arbeitete sie als Ärztin|hatte er lange im Ausland gelebt|wohnte die Familie auf dem Land] .;
    Forscher [der Universität {ort}|aus {ort}] haben [herausgefunden|gezeigt] , dass [Schlaf das Gedächtnis
    stärkt|Bienen Farben unterscheiden können|alte Wälder mehr Kohlenstoff speichern] .; Trotz [der hohen Kosten|des
    schlechten Wetters|aller Warnungen] [begann|endete] {ereignis} wie geplant .; Die Ausstellung in {ort} zeigt bis
    zum Ende des Monats Bilder , die [noch nie zu sehen waren|im Krieg verloren gingen|von Kindern gemalt wurden] .;
    Der Preis für [Brot|Milch|Strom|Kaffee] ist im {monat} so stark gestiegen wie seit {zahl} Jahren nicht mehr .;
    [Leider|Zum Glück|Wie erwartet] hat {wer} die Prüfung [nicht|] bestanden .; Es gibt keinen Grund , sich {sorgen}
    zu machen , sagte {wer} der Zeitung .; Am späten Abend [brannte es in einer Halle|fiel der Strom aus|kam es zu
    einem Stau] [in der Nähe von|am Rand von] {ort} .; Wir empfehlen unseren Gästen , [rechtzeitig zu buchen|feste
    Schuhe mitzunehmen|mit der Bahn anzureisen] , denn [die Plätze sind begrenzt|der Weg ist steil|Parkplätze sind
    selten] .; Mit [diesem Gerät|dieser App|unserem Angebot] können Sie [Ihre Fotos einfach ordnen|überall Musik
    hören|bis zu {zahl} Prozent Energie sparen] .; Die Wohnung hat {zahl} Quadratmeter , [einen Balkon|eine große
    Küche|zwei Bäder] und {lage} beginnt der Wald .; Wer [früh aufsteht|viel liest|langsam fährt] , der [hat mehr vom
    Tag|lernt mehr|kommt sicher an] , sagt man in {ort} .; Die Verhandlungen über {plan} wurden am {tag}
    [abgebrochen|fortgesetzt|ohne Ergebnis beendet] .; Obwohl der Film in {ort} spielt , wurde er [fast ganz im
    Studio|in nur {zahl} Tagen|ohne bekannte Schauspieler] gedreht .; Das Gericht in {ort} entschied , dass [der
    Vermieter|die Bank|der Verein] {zahl} Euro zahlen muss .""")  # fmt: skip
GERMAN_WORDS = {
    "ort": listed("""
    Hamburg; Köln; Dresden; Rostock; Freiburg; Salzburg; Zürich; Kassel; Bremen; Erfurt; Lübeck; Graz; Bonn; Halle;
    Trier; Würzburg; Basel; Münster"""),
    "tag": listed("""
    Montag; Dienstag; Mittwoch; Donnerstag; Freitag; Samstag; Sonntag"""),
    "monat": listed("""
    Januar; März; April; Mai; Juni; August; September; Oktober; Dezember"""),
    "plan": listed("""
    den Bau einer neuen Brücke; die Reform der Schulen; ein Verbot von Plastiktüten; den Ausbau der Radwege; eine
    Steuer auf Zucker; die Sanierung des Rathauses; den Kauf neuer Züge; mehr Geld für Kindergärten"""),
    "tun": listed("""
    durchsetzen; verhindern; prüfen; beschließen; verschieben; überdenken"""),
    "wer": listed("""
    die Ministerin; der Sprecher des Unternehmens; Frau Krüger; Herr Albrecht; die Leiterin des Instituts; der
    Vorsitzende; eine Anwohnerin; mein Bruder; die Präsidentin; der junge Pianist"""),
    "wen": listed("""
    meinen alten Lehrer; meine Schwester; die Nachbarn; meinen besten Freund; unsere Tante aus Wien"""),
    "tor": listed("""
    zwei Tore; kein Tor; drei späte Tore; das erste Tor der Saison"""),
    "leute": listed("""
    Besucher; Studenten; Touristen; Rentner; Familien; Radfahrer; Arbeitslosen; Pendler"""),
    "zahl": listed("""
    drei; fünf; zwölf; zwanzig; 48; 75; 130; 2,5; 17; 900"""),
    "lage": listed("""
    direkt am See; mitten in der Altstadt; gleich hinter dem Haus; fünf Minuten vom Strand; am Fuß des Berges"""),
    "wie": listed("""
    sauber und gemütlich; frisch renoviert; klein , aber fein; ideal für Kinder; bei Einheimischen beliebt"""),
    "ereignis": listed("""
    das Festival; die Konferenz; der Prozess; das Rennen; die Premiere"""),
    "sorgen": listed("""
    große Sorgen; Sorgen um die Zukunft; zu viele Gedanken"""),
}  # fmt: skip

FRENCH = listed("""
    Le maire de {ville} a annoncé {jour} [la construction d'un nouveau pont|la fermeture du marché|un plan pour les
    vélos].; Selon {qui}, {chose} [coûtera plus cher que prévu|ne sera pas prêt avant l'été|a déjà attiré beaucoup de
    visiteurs].; Je [voudrais|aimerais] réserver une table pour {nombre} personnes {jour} soir, [près de la fenêtre|si
    possible en terrasse|au nom de Moreau].; Quand nous sommes arrivés à {ville}, [il pleuvait|la gare était vide|tout
    le monde dormait encore].; Depuis {nombre} ans, {qui} travaille [dans une petite librairie|à l'hôpital|pour une
    entreprise suisse] et [ne regrette rien|cherche maintenant autre chose].; [Malgré la pluie|Malgré le froid|Comme
    chaque année], des milliers de personnes ont [marché|dansé|chanté] dans les rues de {ville}.; Les chercheurs
    pensent que {chose} [changera notre vie|reste un problème difficile|demande plus d'études].; Il faut
    [toujours|parfois] {nombre} heures pour aller de {ville} à la mer, [sauf le dimanche|même en voiture].""")
FRENCH_WORDS = {
    "ville": listed("""
    Lyon; Nantes; Lille; Toulouse; Rennes; Grenoble; Dijon; Genève; Bruxelles; Québec"""),
    "jour": listed("""
    lundi; mardi; mercredi; jeudi; vendredi; samedi"""),
    "qui": listed("""
    la directrice; le ministre; ma voisine; le porte-parole; une étudiante; l'entraîneur; mon oncle"""),
    "chose": listed("""
    le nouveau musée; ce projet; le festival; le tramway; cette découverte; l'école du village"""),
    "nombre": listed("""
    deux; trois; quatre; cinq; six; huit; dix"""),
}

SPANISH = listed("""
    El alcalde de {ciudad} anunció el {dia} [la construcción de un parque|nuevas líneas de autobús|el cierre del
    mercado].; Según {quien}, {cosa} [costará más de lo previsto|no estará listo antes del verano|ha cambiado la vida
    del barrio].; ¿[Podría|Puede] decirme [dónde está la estación|a qué hora sale el tren a {ciudad}|cuánto cuesta la
    entrada]?; Cuando llegamos a {ciudad}, [llovía mucho|las calles estaban vacías|todos nos esperaban en la plaza].;
    Hace {numero} años que {quien} vive en {ciudad}, pero [todavía echa de menos el mar|nunca ha visitado el museo|ya
    habla como la gente de allí].; [Aunque|A pesar de que] {cosa} es [caro|pequeño|difícil], [vale la pena|muchos lo
    recomiendan|pocos lo conocen].; Los científicos [creen|dudan] que {cosa} [pueda repetirse|sea la causa del
    problema|tenga una sola explicación].""")
SPANISH_WORDS = {
    "ciudad": listed("""
    Sevilla; Valencia; Bilbao; Quito; Lima; Rosario; Granada; Puebla; Medellín; Montevideo"""),
    "dia": listed("""
    lunes; martes; miércoles; jueves; viernes; sábado"""),
    "quien": listed("""
    la directora; el ministro; mi vecina; el entrenador; una periodista; mi abuelo"""),
    "cosa": listed("""
    el nuevo hospital; este proyecto; el festival; el experimento; el viejo teatro"""),
    "numero": listed("""
    dos; tres; cinco; siete; diez; veinte"""),
}

CHINESE = listed("""
    {谁}{时候}要去{地方}[开会|看朋友|学习做菜]，所以今天[很忙|早点回家|没有来上课]。; {地方}的[春天|秋天|冬天]很[美|长|冷]，[很多人去那里旅游|但是我最喜欢夏天|路上的人不多]。;
    虽然{东西}[很贵|有点旧|不太大]，但是{谁}[非常喜欢|每天都用|不想卖]。; 请问，去{地方}的[火车|公共汽车|飞机]几点开？; {谁}告诉记者，{东西}[明年就会完成|受到大家的欢迎|还需要更多的时间]。;
    {时候}下了一场大雨，{地方}的[比赛推迟了|路都湿了|学校放假一天]。""")
CHINESE_WORDS = {
    "谁": listed("""
    老师; 我姐姐; 王医生; 那位作家; 我的同事; 校长; 邻居小李"""),
    "时候": listed("""
    明天; 下个星期; 昨天晚上; 今年夏天; 星期五; 上个月"""),
    "地方": listed("""
    北京; 上海; 成都; 西安; 杭州; 昆明; 哈尔滨; 桂林"""),
    "东西": listed("""
    这辆自行车; 新的图书馆; 那座老房子; 这个计划; 他的第一部电影"""),
}

ENGLISH = listed("""
    The {who} told [reporters|the council|our class] on {day} that the {thing} would [cost more than planned|open
    before the summer|stay closed].; [When|By the time] we [reached|left] the {where}, [it was already dark|the shops
    had closed|nobody was waiting for us].; More and more people [move to|leave] the {where} because [rents are
    lower|the air is better|there is not enough work].; [Could you tell me|Do you know] [when the next bus
    leaves|where I can buy a ticket|how far it is to the {where}]?; The {thing} [was built|was founded|was forgotten]
    [a hundred years ago|after the war|long before the railway came], and [few visitors know it|it still works|the
    {who} wants to save it].; Although the {who} had [warned everybody|little experience|worked all night], the
    {thing} [failed|was a great success|was not finished in time].; Researchers [found|doubt|believe] that the {thing}
    [changed the {where}|can be used again|explains the strange noises].; [Every morning|On {day}s|In winter] the
    {who} walks [along|across] the {where} and [feeds the birds|talks to strangers|thinks about the {thing}].; If the
    {thing} [breaks down again|arrives on {day}], the {who} will [call us|sell it|write a letter to the newspaper].""")
ENGLISH_WORDS = {
    "who": listed("""
    mayor; teacher; captain; nurse; young engineer; old fisherman; director of the museum; baker; coach; pianist"""),
    "thing": listed("""
    new bridge; library; ferry; school garden; clock tower; weather station; orchestra; tram; water mill; night market"""),
    "where": listed("""
    harbour; old town; valley; island; north coast; village square; river bank; suburb; border"""),
    "day": listed("""
    Monday; Tuesday; Wednesday; Thursday; Friday; Saturday"""),
}  # fmt: skip

PATTERNS = {
    "German": (GERMAN, GERMAN_WORDS), "French": (FRENCH, FRENCH_WORDS), "Spanish": (SPANISH, SPANISH_WORDS),
    "Chinese": (CHINESE, CHINESE_WORDS), "English": (ENGLISH, ENGLISH_WORDS),
}  # fmt: skip


def composed(rng: random.Random, language: str, many: int = 1) -> str:
    """So many sentences in one of the languages of PATTERNS, which need have nothing to do with each other."""
    patterns, words = PATTERNS[language]
    lines = [pick(rng, patterns, words) for _ in range(many)]
    lines = [line[0].upper() + line[1:] for line in lines]
    if language == "German":  # with marks set off as corpora have them, or as people write
        lines = [line if line[-1] in ".?" or rng.random() < 0.2 else f"{line} ." for line in lines]
        if rng.random() < 0.7:
            lines = [line.replace(" ,", ",").replace(" .", ".").replace(" ?", "?") for line in lines]
    return ("" if language == "Chinese" else " ").join(lines)
