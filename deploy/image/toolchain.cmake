# SPDX-License-Identifier: Apache-2.0
# Compiles for the system that deploy/image/sysroot unpacked. Compilers and generators are this machine's.
#   cmake --toolchain deploy/image/toolchain.cmake -DCMAKE_SYSROOT=DIR -B build-arm64 -G Ninja
file(GLOB triplet LIST_DIRECTORIES true RELATIVE ${CMAKE_SYSROOT}/usr/lib ${CMAKE_SYSROOT}/usr/lib/*-linux-gnu)
string(REGEX REPLACE "-.*" "" CMAKE_SYSTEM_PROCESSOR "${triplet}")
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_C_COMPILER ${triplet}-gcc)
# Before the directories that the compiler knows by itself: its own C library may be older.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-B${CMAKE_SYSROOT}/usr/lib/${triplet} -L${CMAKE_SYSROOT}/usr/lib/${triplet}")
if(NOT CMAKE_CROSSCOMPILING_EMULATOR) # of ctest
  set(CMAKE_CROSSCOMPILING_EMULATOR "qemu-${CMAKE_SYSTEM_PROCESSOR};-L;${CMAKE_SYSROOT}")
endif()

set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CISTERN_DEPS ${CMAKE_SYSROOT}/nothing CACHE PATH "the sysroot has every library")
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${CMAKE_SYSROOT})
set(ENV{PKG_CONFIG_LIBDIR} ${CMAKE_SYSROOT}/usr/lib/${triplet}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig)
