"""Bools as numbers: from outside, and as what a comparison of sizes gives, which stays symbolic.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import math
import operator

import pytest
import torch

from tests.helpers import check
from tests.programs.registry import t

EXPRESSIONS = """
    operator.neg(b) ; operator.inv(b) ; operator.pos(b) ; operator.xor(b,b) ; operator.xor(b,True) ; b^True ; b^(x.shape[1]>1)
    operator.index(b) ; x[0,b] ; x[b].shape ; x[b:b+1].sum() ; b.__index__() ; range(b).stop ; [5,6][b] ; int(b) ; -b ; b+b ; b<<1
    b|b ; b|1 ; b^b ; sum([b]) ; sum([b,b]) ; max(b,False) ; b//1 ; b*True ; math.prod([b]) ; math.gcd(b) ; abs(b) ; round(b) ; ~b ; +b
    b%2 ; math.floor(b) ; math.ceil(b) ; math.trunc(b) ; hash(b) ; b.real ; b.numerator ; b.bit_length() ; b.conjugate() ; pow(b,2)
    divmod(b,1) ; slice(b).stop ; slice(b,b).indices(3) ; complex(b) ; torch.Size([b]) ; operator.mul(b,1) ; operator.and_(b,1)
    math.isqrt(b) ; math.factorial(b) ; b is True ; f"{b}" ; f"{b:d}" ; "%d %s"%(b,b) ; [1,2][:b] ; {1:2}.get(b)
    operator.length_hint([b],b) ; list(enumerate([1],b)) ; int.__index__(b) ; x.shape[b] ; min(b,5) ; sorted([b,0]) ; sum([],b)
    int.__new__(int,b) ; type(b)(b) ; bool(b) ; operator.truth(b)
"""
ASKED = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]


@pytest.mark.parametrize("text", ASKED)
def test_a_bool_where_a_number_is_asked_for(text):
    asked = eval(f"lambda x, b: {text}", {"math": math, "operator": operator, "torch": torch})
    check(lambda x, b: (x * 2, asked(x, b)), *[(t(n, 2), n > 3) for n in (3, 4, 6, 2)])
    check(lambda x: (x * 2, asked(x, x.shape[0] > 3)), *[(t(n, 2),) for n in (3, 4, 6, 2)])
