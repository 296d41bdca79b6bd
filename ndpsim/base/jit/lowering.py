"""How kernels become LLVM's code, where Numba's way (`numba.core.lowering`) takes long.

Numba looks an operator up each time that it is used, and unpacks an array to reach one element. Here what
was found is remembered, and an element takes the few instructions that are left of Numba's when LLVM is done.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from math import prod
from typing import Any, ClassVar

from llvmlite import ir
from numba.core import callconv, cgutils, cpu, errors
from numba.core import ir as numba_ir
from numba.core.lowering import Lower

from ndpsim.base.jit.releases import types

_numba_types: Any = types
_pointer_add: Any = cgutils.pointer_add
_errors: Any = errors
_record_member: Any = cgutils.get_record_member

_STATIC = ("static_getitem", "static_setitem")

# Places in the struct of an array, as in Numba's `ArrayModel`.
_ITEMS, _DATA, _SHAPE, _STRIDES = 2, 4, 5, 6


def array_at(
    context: Any, builder: Any, kind: Any, data: Any, shape: Sequence[Any], strides: Sequence[Any], size: int
) -> Any:
    """An array in LLVM's code; shape and strides: integers, or values in LLVM's code; size: of an item."""
    struct, word = context.get_value_type(kind), ir.IntType(64)
    constant = all(isinstance(length, int) for length in shape)
    items = prod(shape) if constant else ir.Undefined
    fixed = [None, None, items, size, ir.Undefined, *(_constants(words) for words in (shape, strides))]
    parts = [ir.Constant(part, value) for part, value in zip(struct.elements, fixed, strict=True)]
    array = builder.insert_value(ir.Constant(struct, parts), data, _DATA)
    for place, words in ((_SHAPE, shape), (_STRIDES, strides)):
        for axis, value in enumerate(words):
            if not isinstance(value, int):
                array = builder.insert_value(array, value, (place, axis))
    if not constant:
        count = word(1)
        for length in shape:
            count = builder.mul(count, word(length) if isinstance(length, int) else length)
        array = builder.insert_value(array, count, _ITEMS)
    return array


def _constants(words: Sequence[Any]) -> list[Any]:
    word = ir.IntType(64)
    return [word(value if isinstance(value, int) else ir.Undefined) for value in words]


def _array_of_record(context: Any, builder: Any, kind: Any, record: Any, name: str) -> Any:
    """A field of a record that is an array."""
    field = kind.typeof(name)
    data = _record_member(builder, record, kind.offset(name), context.get_data_type(field.dtype))
    return array_at(context, builder, field, data, field.shape, field.strides, field.size)


def _shape_of_array(context: Any, builder: Any, kind: Any, array: Any, name: str) -> Any:
    """The shape of an array."""
    return builder.extract_value(array, _SHAPE)


class _Calls(callconv.CPUCallConv):
    """Numba's way to call functions, without zeros in the memory for a result.

    LLVM would write the zeros each time that it comes by, however seldom the function is called.
    """

    def call_function(
        self, builder: Any, callee: Any, resty: Any, argtys: Any, args: Any, attrs: Any = ()
    ) -> Any:
        """Call a compiled function: its status and its result."""
        with builder.goto_entry_block():
            places = [builder.alloca(argument.type.pointee) for argument in callee.args[:2]]
        convention: Any = self
        packed = convention._get_arg_packer(argtys).as_arguments(builder, args)
        code = builder.call(callee, [*places, *packed], attrs=tuple(attrs or ()))
        result, error = map(builder.load, places)
        status = convention._get_return_status(builder, code, error)
        return status, self.context.get_returned_value(builder, resty, result)


class KernelTarget(cpu.CPUContext):
    """Numba's target, which remembers what it has found or asked LLVM for."""

    _functions: ClassVar[dict[tuple[Any, Any], Any]] = {}
    _sizes: ClassVar[dict[tuple[str, str], int]] = {}

    @property
    def call_conv(self) -> Any:
        """How functions are called."""
        convention: Any = _Calls
        return convention(self)

    def refresh(self) -> None:
        """Look for functions that were typed since; a kernel does the rest once, see `KernelCompiler`."""
        install: Any = self.install_registry
        for registry in list(self._registries):
            install(registry)

    def get_function(self, function: Any, signature: Any, _firstcall: bool = True) -> Any:
        """What makes the code of a function for a signature."""
        if isinstance(function, str) and function == "__array__":
            raise NotImplementedError  # kernels have no arrays of other classes
        key = function, signature
        if key not in self._functions:
            look_up: Any = super().get_function
            try:
                self._functions[key] = look_up(function, signature, _firstcall)
            except NotImplementedError:
                if function not in _STATIC:
                    raise
                self._functions[key] = None
        found = self._functions[key]
        if found is None:  # Numba goes on with an index that is not constant
            raise NotImplementedError
        own = object.__new__(type(found))
        vars(own).update(vars(found), _context=self)
        return own

    def get_getattr(self, typ: Any, attr: str) -> Any:
        """What makes the code that reads an attribute."""
        if isinstance(typ, _numba_types.Record) and isinstance(typ.typeof(attr), _numba_types.NestedArray):
            return _array_of_record
        if attr == "shape" and isinstance(typ, _numba_types.Array) and typ.ndim > 0:
            return _shape_of_array
        look_up: Any = super().get_getattr
        return look_up(typ, attr)

    def get_abi_sizeof(self, ty: Any) -> int:
        """The size of a type; LLVM parses a module to tell it."""
        return self._measured("size", ty, super().get_abi_sizeof)

    def get_abi_alignment(self, ty: Any) -> int:
        """The alignment of a type, likewise."""
        return self._measured("alignment", ty, super().get_abi_alignment)

    def _measured(self, what: str, kind: Any, ask: Any) -> int:
        key = what, str(kind)
        if key not in self._sizes:
            self._sizes[key] = ask(kind)
        return self._sizes[key]


class KernelLower(Lower):
    """Numba's way to LLVM's code, shorter for operators and elements of arrays."""

    _signatures: ClassVar[dict[tuple[Any, Any], Any]] = {}

    def lower_block(self, block: Any) -> None:
        """A block; Numba prepares a message for each instruction, here one that fails does."""
        numbas: Any = self
        numbas.pre_block(block)
        for instruction in block.body:
            self.loc = instruction.loc
            try:
                self.lower_inst(instruction)
            except Exception:
                place = instruction.loc
                failed = partial(_errors.LoweringError, loc=place)
                said = 'lowering "{inst}" at {loc}'
                with _errors.new_error_context(said, inst=instruction, loc=place, errcls_=failed):
                    raise
        numbas.post_block(block)

    def lower_inst(self, inst: Any) -> None:
        """An instruction; Numba writes each down, in case that someone wants to read it."""
        if isinstance(inst, numba_ir.Assign):
            numbas: Any = self
            self.debuginfo.mark_location(self.builder, inst.loc.line)
            value = numbas.lower_assign(numbas.typeof(inst.target.name), inst)
            self.storevar(value, inst.target.name)
        else:
            lower: Any = super().lower_inst
            lower(inst)

    def storevar(self, value: Any, name: str, argidx: int | None = None) -> None:
        """Set a variable; its former value has no reference to give back."""
        numbas: Any = self
        if self._disable_sroa_like_opt:
            store: Any = super().storevar
            store(value, name, argidx)
        elif name in self._singly_assigned_vars:
            self._blk_local_varmap[name] = value
        else:
            self.builder.store(value, numbas.getvar(name))

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """The outcome of an operator on two values."""
        if op in (operator.pow, operator.ipow):  # Numba has others for constant exponents
            lower: Any = super().lower_binop
            return lower(resty, expr, op)
        signature = self.fndesc.calltypes[expr]
        outcome = self._called(op, signature.args, self._values((expr.lhs, expr.rhs), signature.args))
        return self.context.cast(self.builder, outcome, signature.return_type, resty)

    def lower_getitem(self, resty: Any, expr: Any, value: Any, index: Any, signature: Any) -> Any:
        """An element or part of a value."""
        array, place = self._values((value, index), signature.args)
        address = self._address(signature.args[0], signature.args[1], array, place)
        if address is None:
            element = self._called(operator.getitem, signature.args, (array, place))
            return self.context.cast(self.builder, element, signature.return_type, resty)
        kind = signature.args[0]
        element = self.context.unpack_value(self.builder, kind.dtype, address, None if kind.aligned else 1)
        return self.context.cast(self.builder, element, kind.dtype, resty)

    def lower_setitem(self, target_var: Any, index_var: Any, value_var: Any, signature: Any) -> Any:
        """Set an element or part of a value."""
        kinds = signature.args
        array, place, value = self._values((target_var, index_var, value_var), kinds)
        address = self._address(kinds[0], kinds[1], array, place)
        if address is None:
            return self._called(operator.setitem, kinds, (array, place, value))
        value = self.context.cast(self.builder, value, kinds[2], kinds[0].dtype)
        align = None if kinds[0].aligned else 1
        return self.context.pack_value(self.builder, kinds[0].dtype, value, address, align)

    def _values(self, variables: Sequence[Any], kinds: Sequence[Any]) -> list[Any]:
        """The values of variables, as values of other types."""
        each = zip((variable.name for variable in variables), kinds, strict=True)
        numbas: Any = self
        cast, builder = self.context.cast, self.builder
        return [cast(builder, numbas.loadvar(name), numbas.typeof(name), kind) for name, kind in each]

    def _called(self, function: Any, kinds: Any, values: Sequence[Any]) -> Any:
        """The outcome of an operator on values of given types."""
        if (function, kinds) not in self._signatures:
            typing = self.context.typing_context
            called = typing.resolve_value_type(function)
            self._signatures[function, kinds] = called, called.get_call_type(typing, kinds, {})
        return self.context.get_function(*self._signatures[function, kinds])(self.builder, values)

    def _address(self, array_kind: Any, index_kind: Any, array: Any, index: Any) -> Any:
        """The address of an element; None: an index denotes more than one, or bounds are checked."""
        kinds = index_kind.types if isinstance(index_kind, _numba_types.BaseTuple) else (index_kind,)
        if self.context.enable_boundscheck or not isinstance(array_kind, _numba_types.Array):
            return None
        if array_kind.ndim != len(kinds) or not all(isinstance(each, _numba_types.Integer) for each in kinds):
            return None
        builder, numbers = self.builder, [index]
        if isinstance(index_kind, _numba_types.BaseTuple):
            numbers = [builder.extract_value(index, axis) for axis in range(len(kinds))]
        places = [
            self._place(array, axis, *pair) for axis, pair in enumerate(zip(kinds, numbers, strict=True))
        ]
        data = builder.extract_value(array, _DATA)
        if array_kind.layout == "C":
            place = places[0]
            for axis, number in enumerate(places[1:], 1):
                place = builder.add(builder.mul(place, builder.extract_value(array, (_SHAPE, axis))), number)
            return builder.gep(data, [place])
        offset = ir.IntType(64)(0)
        for axis, number in enumerate(places):
            stride = builder.extract_value(array, (_STRIDES, axis))
            offset = builder.add(offset, builder.mul(stride, number))
        return _pointer_add(builder, data, offset)

    def _place(self, array: Any, axis: int, kind: Any, number: Any) -> Any:
        """An index from 0 on: one below 0 counts from the end."""
        word = _numba_types.intp if kind.signed else _numba_types.uintp
        place, builder = self.context.cast(self.builder, number, kind, word), self.builder
        if not kind.signed or (isinstance(place, ir.Constant) and place.constant >= 0):
            return place
        from_end = builder.add(place, builder.extract_value(array, (_SHAPE, axis)))
        return builder.select(builder.icmp_signed("<", place, place.type(0)), from_end, place)
