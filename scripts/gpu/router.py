"""router.py ARGS: runs the vllm-router that lies beside this file (router.tar.xz of pack.sh), with ARGS.

vllm-router is a library in Rust with a launcher in Python. The launcher imports a balancer for tests and its web
framework, which only --mini-lb uses. They are left out, so that any Python can run it.
"""
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))


def without(name, **members):
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__dict__.update(members)


def main():
    sys.path[:] = [HERE] + [p for p in sys.path if p != HERE]
    without("vllm_router.mini_lb", MiniLoadBalancer=None)
    without("setproctitle", setproctitle=lambda title: None)
    from vllm_router.launch_router import main as launch
    launch()


if __name__ == "__main__":
    main()
