/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* classify for nodes with cgroup v1: pods with the host's network are told by the net_cls.classid of their cgroup.
 * An object of its own, because a kernel without CONFIG_CGROUP_NET_CLASSID refuses it. */
#define BY_NET_CLS
#include "classify.c"
