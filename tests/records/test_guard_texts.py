"""Guards in plain words, from the texts that torch wrote for compiles of models."""

from __future__ import annotations

import pytest

from dynamo_dap.debuggee.recording.guard_texts import guard_text

TEXTS = {
    "___check_obj_id(G['torch'], 139788182681088), type=<class 'module'>": "torch is the module it was",
    "___check_obj_id(G['__builtins_dict___5']['print'], 14), type=<class 'builtin_function_or_method'>": (
        "print is the function it was"
    ),
    "___check_type_id(L['self'], 94358605016736), type=<class '__main__.M'>": "self is of type M",
    "check_tensor(L['x'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, "
    "device=None, requires_grad=False, size=[None, 2], stride=[2, 1])": (
        "x is f32[any, 2], on cpu, strides [2, 1], no grad"
    ),
    "check_tensor(L['self']._modules['fc']._parameters['weight'], Parameter, DispatchKeySet(CUDA, BackendSelect), "
    "torch.bfloat16, device=0, requires_grad=True, size=[4], stride=[1])": (
        "self.fc.weight is bf16[4], on cuda:0, strides [1], requires grad"
    ),
    "hasattr(L['x'], '_dynamo_dynamic_indices') == False": "no size of x is marked as dynamic",
    "hasattr(L['x'], '_dynamo_a') == False and hasattr(L['x'], '_dynamo_b') == False": (
        "no size of x is marked (2 checks)"
    ),
    "not ___dict_contains('return_dict', L['kwargs'])": "'return_dict' is not in kwargs",
    "___dict_contains('a', G['TABLE'])": "'a' is in TABLE",
    "L['___stack0'] == 4": "intermediate value 0 == 4",
    "2 <= L['x'].size()[0]": "2 <= x.shape[0]",
    "len(L['kwargs']) == 6": "len(kwargs) == 6",
    "list(dict.keys(L['d'])) == ['a']": "the keys of d == ['a']",
    "tensor 'x' size mismatch at index 0. expected 3, actual 5": "size 0 of x was 3 and is 5",
    "tensor 'x' dtype mismatch. expected Float, actual Double": "dtype of x was Float and is Double",
    "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect), actual DispatchKeySet(CPU, "
    "BackendSelect, ADInplaceOrView, AutogradCPU)": "x was an inference tensor and is an ordinary tensor",
    "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect), actual DispatchKeySet(CPU, "
    "BackendSelect, ADInplaceOrView)": (
        "dispatch key set of x was DispatchKeySet(CPU, BackendSelect) and is DispatchKeySet(CPU, BackendSelect, "
        "ADInplaceOrView)"
    ),
    "tensor 'x' dispatch key set mismatch. expected DispatchKeySet(CPU, BackendSelect), actual DispatchKeySet(CPU, "
    "Conjugate, BackendSelect)": (
        "dispatch key set of x was DispatchKeySet(CPU, BackendSelect) and is DispatchKeySet(CPU, Conjugate, "
        "BackendSelect)"
    ),
    "2 <= L['___stack0'][1].size()[0]": "2 <= intermediate value 0[1].shape[0]",
    "tensor 'x' requires_grad mismatch. expected requires_grad=0": "x required no gradient and requires one",
    "tensor 'h' requires_grad mismatch. expected requires_grad=1": "h required a gradient and requires none",
    "expected type of 'L['cache'].keys' to be a tensor type, ' but found <class 'NoneType'>": (
        "cache.keys was a tensor and is None"
    ),
    "expected type of 'L['cache'].keys' to be <class 'torch.Tensor'>, but found <class 'NoneType'>": (
        "cache.keys was a tensor and is None"
    ),
    "tensor 'x' requires_grad mismatch. expected requires_grad=0. Actual": (
        "tensor 'x' requires_grad mismatch. expected requires_grad=0. Actual"
    ),
    "EMPTY_NN_MODULE_HOOKS_DICT L['self']._modules['fc']._backward_hooks": "self.fc._backward_hooks is empty",
    "CLOSURE_MATCH G['torch']._dynamo.graph_break": "torch._dynamo.graph_break has the code it had",
    "CLOSURE_MATCH dict(type(L['self']._modules['model']).__dict__)['forward'].__closure__[0].cell_contents": (
        "type(self.model).forward.__closure__[0].cell_contents has the code it had"
    ),
    "not ___dict_contains('a', dict(type(L['self'].config).__mro__[1].__dict__)['attribute_map'])": (
        "'a' is not in type(self.config).attribute_map"
    ),
    "GRAD_MODE": "grad mode is as it was",
    "something of a torch to come": "something of a torch to come",
}


@pytest.mark.parametrize(("torchs", "ours"), TEXTS.items())
def test_a_guard_is_said_in_plain_words(torchs: str, ours: str) -> None:
    assert guard_text(torchs) == ours
