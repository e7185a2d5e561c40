"""What kind of page a wiki's page is: a redirect, a disambiguation page, a list; in the languages of large Wikipedias.

Redirect words are MediaWiki's own (languages/messages), templates those that a wiki's disambiguation pages bear, not
the remarks that send a reader of an article to one ({{Begriffsklärungshinweis}}, {{Nota disambigua}}, {{Значения}}).
All rows hold for every dump: no language's words mean anything else in another's titles.
"""

from __future__ import annotations

import re

# language: redirect words | templates of disambiguation pages | what stands in brackets behind their titles |
# titles of lists, from their first letter. Alternatives are apart by "|"; titles are regular expressions.
WIKIS = {
    "en": ("", "", "disambiguation", r"Lists? of |Index of |Outline of |Timeline of "),
    "de": ("#WEITERLEITUNG", "Begriffsklärung", "Begriffsklärung", r"Listen? (der|des|vo[nm]|aller|[a-zäöüß]+er) "),
    "fr": ("#REDIRECTION", "Homonymie|Patronyme|Toponymie", "homonymie", r"Listes? (des? |du |d['’])"),
    "es": ("#REDIRECCIÓN|#REDIRECCION", "Desambiguación|Desambiguacion", "desambiguación", r"(Anexo:)?Lista del? "),
    "it": ("#RINVIA|#RINVIO|#RIMANDO", "Disambigua", "disambigua", r"Lista (di |dei |de(gl|ll)[aei]? |dell['’])"),
    "pt": ("#REDIRECIONAMENTO", "Desambiguação|Desambig", "desambiguação", r"Lista d[aeo]s? "),
    "nl": ("#DOORVERWIJZING", "Dp|Dpintro|Doorverwijspagina", "doorverwijspagina", r"Lijst(en)? van "),
    "pl": (
        "#PATRZ|#PRZEKIERUJ|#TAM",
        "Ujednoznacznienie|Strona ujednoznaczniająca",
        "ujednoznacznienie",
        r"Lista ([a-zążźćęłńóś]+(ów|ych|ich)|państw|miast|gmin) ",
    ),
    "ru": ("#ПЕРЕНАПРАВЛЕНИЕ|#ПЕРЕНАПР", "Неоднозначность|Многозначность", "значения", r"Спис(ок|ки) [а-яё]"),
    "uk": ("#ПЕРЕНАПРАВЛЕННЯ", "Неоднозначність|Багатозначність", "значення", r"Спис(ок|ки) [а-яґєії]"),
    "ja": ("#転送|#リダイレクト|＃転送|＃リダイレクト", "Aimai|曖昧さ回避", "曖昧さ回避", r".*一覧( \(.*\))?$"),
    "zh": ("#重定向|#重新導向", "消歧义|消歧義|消歧义页|消歧義頁", "消歧义|消歧義", r".*(列表|一览|一覽)$"),
    "ko": ("#넘겨주기", "동음이의", "동음이의", r".*목록$"),
    "sv": ("#OMDIRIGERING", "Förgrening|Förgreningssida", "olika betydelser", r"Lista över "),
    "ca": ("", "Desambiguació", "desambiguació", r"Llista (de |del |dels |d['’])"),
    "tr": ("#YÖNLENDİRME|#YÖNLENDİR", "Anlam ayrımı", "anlam ayrımı", r".* listesi$"),
    "ar": ("#تحويل", "توضيح", "توضيح", r"قائمة "),
}
# Templates of whole families; {{disambiguation needed}} is a remark about one link, {{DisambigR}} one of an article.
FAMILIES = (
    r"(?!disambig\w*[ -]needed|disambigr)disambig[\w /-]{0,40}|dab|hndis|geodis|schooldis|hospitaldis|surname|"
    r"given name|human name disambiguation|[\w -]{1,40} disambiguation|homonymie[ _][\w '’-]{1,40}|"
    r"\w{1,20}の曖昧さ回避"
)
SWITCHES = "__DISAMBIG__|__동음이의__"


def _of(column: int, blank: str = " ") -> str:
    return "|".join(row[column].replace(" ", blank) for row in WIKIS.values() if row[column])


# "#redirect" needs no link to be one; a numbered list of another language might begin with a short word.
REDIRECT = re.compile(rf"\s*(#redirect|({_of(0)})\s*:?\s*\[\[)", re.IGNORECASE)
TEMPLATE = re.compile(rf"\{{\{{\s{{0,4}}({FAMILIES}|{_of(1, '[ _]')})\s{{0,4}}[|}}]|{SWITCHES}", re.IGNORECASE)
BRACKETS = re.compile(rf"[(（]({_of(2)})[)）]$", re.IGNORECASE)
LIST = re.compile(_of(3))


def is_redirect(source: str) -> bool:
    """Whether wikitext only sends its reader on to another page."""
    return REDIRECT.match(source[:200]) is not None


def is_disambiguation(title: str, source: str) -> bool:
    """Whether a page only lists what a name can mean: by its title, by a template of its own, or by __DISAMBIG__."""
    return BRACKETS.search(title) is not None or TEMPLATE.search(source) is not None


def is_list(title: str) -> bool:
    """Whether a title is that of a list or an outline; La lista de Schindler is none."""
    return LIST.match(title) is not None
