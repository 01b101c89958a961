import pytest

from fedscale_ext.core.errors import UserError
from fedscale_ext.driver.setup_commands import check_program, plain_commands


@pytest.mark.parametrize(
    "command",
    ["source $HOME/anaconda3/bin/activate fedscale", "export NCCL_SOCKET_IFNAME='enp94s0f0'", "ls | wc", "a && b",
     "X=1 ls", ". env/bin/activate", "cd /tmp", "conda activate x", "ls > /tmp/x", "echo `id`", "rm *.log", "echo 'x"],
)  # fmt: skip
def test_commands_that_need_a_shell_are_left_out(command):
    assert plain_commands([command]) == ([], [command])


def test_plain_commands_become_argument_lists():
    assert plain_commands(["ls '/a b' -l", "", "env"]) == ([["ls", "/a b", "-l"], ["env"]], [])


def test_program_that_is_missing():
    with pytest.raises(UserError, match="the program 'no-such-program' is not found"):
        check_program(["no-such-program", "x"])
    check_program(["env"])
