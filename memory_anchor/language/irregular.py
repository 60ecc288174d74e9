"""Irregular English forms and the word they belong to: "went" is asked for as "go", "children" as "child".

Stemming only cuts endings, and questions use the base form where memories use the past ("Where did she buy it?" - "I
bought it ..."): +0.7 R@1 and +0.4 R@5 on LoCoMo (docs/retrieval.md). The table is closed: the language has no new
irregular verbs. A form that is also a word of its own ("saw", "left") meets both its meanings, in queries alike.
"""

from __future__ import annotations

_VERBS = """
arise arose arisen | awake awoke awoken | bear bore borne | become became | begin began begun | bend bent | bind bound
bite bit bitten | bleed bled | blow blew blown | break broke broken | breed bred | bring brought | build built
burn burnt | buy bought | catch caught | choose chose chosen | come came | creep crept | deal dealt | dig dug
draw drew drawn | dream dreamt | drink drank drunk | drive drove driven | eat ate eaten | fall fell fallen | feed fed
feel felt | fight fought | find found | flee fled | fly flew flown | forbid forbade forbidden
forget forgot forgotten | forgive forgave forgiven | freeze froze frozen | get got gotten | give gave given
go went gone | grow grew grown | hang hung | hear heard | hide hid hidden | hold held | keep kept | kneel knelt
know knew known | lay laid | lead led | learn learnt | leave left | lend lent | lie lain | light lit | lose lost
make made | mean meant | meet met | mistake mistook mistaken | overcome overcame | overwrite overwrote overwritten
pay paid | prove proven | rebuild rebuilt | resend resent | rewrite rewrote rewritten | ride rode ridden
ring rang rung | rise rose risen | run ran | say said | see saw seen | seek sought | sell sold | send sent
sew sewn | shake shook shaken | shine shone | shoot shot | show shown | shrink shrank shrunk | sing sang sung
sink sank sunk | sit sat | sleep slept | slide slid | speak spoke spoken | speed sped | spend spent | spin spun
spring sprang sprung | stand stood | steal stole stolen | stick stuck | strike struck | swear swore sworn
sweep swept | swim swam swum | swing swung | take took taken | teach taught | tear tore torn | tell told
think thought | throw threw thrown | understand understood | undo undid undone | wake woke woken | wear wore worn
weave wove woven | win won | withdraw withdrew withdrawn | write wrote written
"""
_NOUNS = """
child children | person people | man men | woman women | foot feet | tooth teeth | mouse mice | goose geese | life lives
wife wives | knife knives | leaf leaves | half halves | shelf shelves | index indices | matrix matrices
vertex vertices | criterion criteria | analysis analyses
"""


def _table(text: str) -> dict[str, str]:
    families = (family.split() for family in text.replace("\n", "|").split("|"))
    return {form: base for base, *forms in filter(None, families) for form in forms}


BASE_FORMS = _table(_VERBS) | _table(_NOUNS)
"""Irregular form -> base form, lower case."""
