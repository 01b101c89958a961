from fedscale_ext.core.errors import enumerated, listed


def test_a_name_with_a_comma_is_quoted_in_a_list() -> None:
    assert listed(["Doe, Jane", "cam 2"]) == "'Doe, Jane', cam 2"
    assert listed(["'Doe, Jane'", "[1, 2]", "a", "b"], 2) == "'Doe, Jane', [1, 2] and 2 more"


def test_enumerations_end_in_a_conjunction() -> None:
    assert [enumerated([1, "b", "c"][:number]) for number in (1, 2, 3)] == ["1", "1 and b", "1, b and c"]
    assert enumerated(["a", "b"], "or") == "a or b"
