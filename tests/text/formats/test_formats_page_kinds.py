"""Redirects, disambiguation pages and lists of large Wikipedias: none an article, and no article one of them."""

from collections import Counter

import pytest

from realm.text.corpus import CorpusError
from realm.text.formats import read_documents
from realm.text.formats.page_kinds import is_disambiguation, is_list, is_redirect
from tests.text.formats.format_samples import A, Z, dump, kilt, page

REDIRECTS = ["#REDIRECT [[A]]", "\n #Redirect:[[A]]", "#WEITERLEITUNG [[A]]", "#redirection[[A]]", "#REDIRECCIÓN [[A]]"]
REDIRECTS += ["#RINVIA [[A]]", "#REDIRECIONAMENTO [[A]]", "#DOORVERWIJZING [[A]]", "#PATRZ [[A]]", "#Tam [[A]]"]
REDIRECTS += ["#перенаправление [[A]]", "#ПЕРЕНАПР [[A]]", "#重定向 [[A]]", "#重新導向 [[A]]", "#転送 [[A]]"]
REDIRECTS += ["＃リダイレクト[[A]]", "#넘겨주기 [[A]]", "#OMDIRIGERING [[A]]"]
NO_REDIRECTS = ["#[[A]]", "#Tam był", "# PATRZ [[A]]", "He wrote #WEITERLEITUNG [[A]]"]
# title -> wikitext; where a template tells, the title is the wiki's language.
DISAMBIGUATION = {
    "B (disambiguation)": "T.",
    "B (Begriffsklärung)": "T.",
    "B (homonymie)": "T.",
    "B (desambiguación)": "T.",
    "B (disambigua)": "T.",
    "B (desambiguação)": "T.",
    "B (doorverwijspagina)": "T.",
    "B (ujednoznacznienie)": "T.",
    "Б (значения)": "T.",
    "乙 (曖昧さ回避)": "T.",
    "乙（消歧義）": "T.",
    "en": "B may be:\n{{Disambiguation|geo}}",
    "de": "B steht für:\n* [[C]]\n{{Begriffsklärung}}",
    "fr": "{{homonymie}}",
    "fr, of persons": "{{Homonymie de personnes}}",
    "es": "{{desambiguación}}",
    "it": "{{Disambigua}}",
    "pt": "{{desambiguação|B}}",
    "nl": "B kan zijn:\n{{dp}}",
    "pl": "{{Ujednoznacznienie}}",
    "pl, as it was": "{{strona_ujednoznaczniająca}}",
    "ru": "{{ неоднозначность }}",
    "ja": "{{Aimai}}",
    "ja, of persons": "{{人名の曖昧さ回避}}",
    "zh": "{{消歧义}}",
    "any, with the extension Disambiguator": "B may be:\n* [[C]]\n__DISAMBIG__",
}
LISTS = ["List of things", "Outline of things", "Liste der Dinge", "Listen von Dingen", "Liste geflügelter Worte"]
LISTS += ["Liste des choses", "Liste d'îles", "Lista de cosas", "Anexo:Lista de cosas", "Lista delle cose"]
LISTS += ["Lista dell'arte", "Lista das coisas", "Lijst van dingen", "Lista gatunków ptaków", "Lista miast w Polsce"]
LISTS += ["Список вещей", "物の一覧", "物件列表", "Lista över saker"]
# What stands at the head of an article or behind one link.
REMARKS = ["{{Disambiguation needed|date=May 2001}}", "{{disambig-needed}}", "{{dn}}", "disambig"]
REMARKS += ["{{Begriffsklärungshinweis}}", "{{Voir homonymes|A}}", "{{Nota disambigua|b}}", "{{otros usos}}"]
REMARKS += ["{{Ver desambiguação}}", "{{zie dp}}", "{{DisambigR|B}}", "{{Другие значения}}", "{{Otheruses}}"]
ARTICLES = ["Liste noire", "Liste Pilz", "La lista de Schindler", "Lista Schindlera", "Список Шиндлера", "Lista negra"]


@pytest.mark.parametrize("source", REDIRECTS)
def test_a_redirect_is_told_by_the_wikis_own_words(tmp_path, source):
    path, counts = tmp_path / "dump.xml", Counter()
    path.write_bytes(dump(page("b", "B", source)))
    assert list(read_documents(path, counts=counts)) == [A, Z] and counts == {"redirect": 1}


@pytest.mark.parametrize("title", DISAMBIGUATION)
def test_a_disambiguation_page_is_told_by_title_or_template(tmp_path, title):
    path, counts = tmp_path / "dump.xml", Counter()
    path.write_bytes(dump(page("b", title, DISAMBIGUATION[title])))
    assert list(read_documents(path, counts=counts)) == [A, Z] and counts == {"disambiguation page": 1}


@pytest.mark.parametrize("title", LISTS)
def test_a_list_is_told_by_its_title(tmp_path, title):
    path, counts = tmp_path / "dump.xml", Counter()
    path.write_bytes(dump(page("b", title, "* [[Thing]]")))
    assert list(read_documents(path, counts=counts)) == [A, Z] and counts == {"list page": 1}


@pytest.mark.parametrize("remark", REMARKS)
def test_a_remark_in_an_article_makes_no_disambiguation_page(remark):
    assert not is_disambiguation("Name", f"{remark} He met [[Name]]{remark}.")


@pytest.mark.parametrize("title", ARTICLES)
def test_an_article_is_no_list(title):
    assert not is_list(title) and not is_disambiguation(title, "Text.")


@pytest.mark.parametrize("source", NO_REDIRECTS)
def test_a_numbered_list_is_no_redirect(source):
    assert not is_redirect(source)


def test_disambiguation_pages_and_lists_can_be_kept(tmp_path):
    path = tmp_path / "dump.xml"
    path.write_bytes(dump(page("1", "B (disambiguation)", "B:\n* [[C]]"), page("2", "List of things", "* [[D]]")))
    for keep, ids in (
        ((), "az"),
        (("list",), "a2z"),
        (("disambiguation",), "a1z"),
        (("list", "disambiguation"), "a12z"),
    ):
        assert "".join(one.id for one in read_documents(path, keep=keep)) == ids


def test_where_nothing_is_left_out_nothing_can_be_kept(tmp_path):
    (tmp_path / "kilt.json").write_bytes(kilt())
    assert list(read_documents(tmp_path / "kilt.json")) == [A, Z]
    with pytest.raises(CorpusError, match="kilt.json: found keep=.'list',. for the format kilt.*wanted it for a dump"):
        read_documents(tmp_path / "kilt.json", keep=("list",))
