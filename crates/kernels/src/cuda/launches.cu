// Overlapping launches: one waits for those ahead before it reads or writes what they may write. The next one may be let in sooner: it waits as well.
#if __CUDA_ARCH__ >= 900
DEVICE void await_launches() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE void admit_launches() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
#else
DEVICE void await_launches() {}
DEVICE void admit_launches() {}
#endif
