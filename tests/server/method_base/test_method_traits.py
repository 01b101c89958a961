"""Options that a method excludes hold for its subclasses, too, unless these give another reason."""

from fedscale_ext.config.methods import method_class, method_names
from fedscale_ext.method import Excludes, Feature, MultiModelAggregator
from fedscale_ext.server.method_base.method_traits import exclusion


class Base(MultiModelAggregator):
    excludes = (Excludes(Feature.ADAM, "steps by SGD"), Excludes(Feature.PRIVACY, "sends logits"))


class Heir(Base):
    excludes = (Excludes(Feature.PRIVACY, "sends models"), Excludes(Feature.EARLY_STOP, "has stages"))


def test_a_subclass_adds_to_what_its_base_excludes() -> None:
    assert exclusion(Heir, Feature.ADAM) == "steps by SGD"
    assert exclusion(Heir, Feature.PRIVACY) == "sends models"
    assert exclusion(Heir, Feature.EARLY_STOP) == "has stages"
    assert exclusion(Base, Feature.EARLY_STOP) is exclusion(MultiModelAggregator, Feature.ADAM) is None


def test_reasons_end_a_sentence_that_begins_with_the_methods_name() -> None:
    excluded = {(name, each.feature): each.reason for name in method_names() for each in method_class(name).excludes}
    assert len(excluded) > 12
    assert all(reason[0].islower() and not reason.endswith(".") for reason in excluded.values())


def test_fedmd_excludes_what_its_bases_do() -> None:
    assert exclusion(method_class("fedmd"), Feature.PRIVACY) == "learns from the logits of each client's model"
    assert exclusion(method_class("fedmd"), Feature.CHANGES) == "trains models that its clients keep"
