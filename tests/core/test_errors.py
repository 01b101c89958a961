from fedscale_ext.core.errors import listed


def test_a_name_with_a_comma_is_quoted_in_a_list() -> None:
    assert listed(["Doe, Jane", "cam 2"]) == "'Doe, Jane', cam 2"
    assert listed(["'Doe, Jane'", "[1, 2]", "a", "b"], 2) == "'Doe, Jane', [1, 2] and 2 more"
