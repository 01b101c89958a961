"""Lists in sentences about data."""

from fedscale_ext.data.wording import listed


def test_a_list_that_is_cut_says_what_there_is_more_of() -> None:
    assert listed([1, 2, 3], 3) == listed([1, 2, 3], 3, "size") == "1, 2, 3"
    assert listed([1, 2, 3, 4], 3) == "1, 2, 3 and 1 more"
    assert listed([1, 2, 3, 4], 3, "size") == "1, 2, 3 and 1 more size"
    assert listed(range(43), 3, "size") == "0, 1, 2 and 40 more sizes"
