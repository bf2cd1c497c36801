# The drafter as a library, and what is installed: included by the Makefile.

PREFIX     := /usr/local
BINDIR     := $(PREFIX)/bin
LIBDIR     := $(PREFIX)/lib
INCLUDEDIR := $(PREFIX)/include
MANDIR     := $(PREFIX)/share/man

# Before 1.0 a second number may break callers, so it is part of the soname (impl/include/dflash/api.h).
SONAME := libdflash.so.$(word 1,$(subst ., ,$(VERSION))).$(word 2,$(subst ., ,$(VERSION)))
SHARED := $(BUILD)/libdflash.so.$(VERSION)
STATIC := $(BUILD)/libdflash.a
PIC    := $(BUILD)/pic

.PHONY: library install uninstall dist example pic

library: setup
	@$(MAKE) --no-print-directory $(SHARED) $(STATIC) $(BUILD)/dflash.pc

# Compiled once more, so that it can be loaded anywhere; only what the public headers declare is exported.
pic:
	@$(MAKE) --no-print-directory BUILD=$(PIC) EXTRA_CFLAGS='-fPIC -fvisibility=hidden $(EXTRA_CFLAGS)' \
	    EXTRA_CUDA_FLAGS='-Xcompiler -fPIC,-fvisibility=hidden' $(patsubst $(BUILD)/%,$(PIC)/%,$(IMPL_OBJECTS))
LIBRARY_OBJECTS = $(patsubst $(BUILD)/%,$(PIC)/%,$(IMPL_OBJECTS))
LIBRARY_LIBS    = $(CUDA_LIBS) $(shell pkg-config --libs libcjson) -lpthread -lm

$(SHARED): pic
	$(call say,LD,$@)$(CC) -shared -Wl,-soname,$(SONAME) -Wl,-z,defs $(LDFLAGS) -o $@ $(LIBRARY_OBJECTS) $(LIBRARY_LIBS)
	@ln -sf $(@F) $(BUILD)/$(SONAME) && ln -sf $(SONAME) $(BUILD)/libdflash.so

$(STATIC): pic
	@rm -f $@
	$(call say,AR,$@)ar rcsD $@ $(LIBRARY_OBJECTS)

$(BUILD)/dflash.pc: Makefile package.mk
	@mkdir -p $(@D)
	@printf '%s\n' 'prefix=$(PREFIX)' 'libdir=$(LIBDIR)' 'includedir=$(INCLUDEDIR)' '' 'Name: dflash' \
	    'Description: block drafters (DFlash, DSpark, DFlash2) for speculative decoding' 'Version: $(VERSION)' \
	    'Cflags: -I$${includedir}' 'Libs: -L$${libdir} -ldflash' 'Requires.private: libcjson' \
	    'Libs.private: $(CUDA_LIBS) -lpthread -lm' >$@

install: library build
	install -d '$(DESTDIR)$(BINDIR)' '$(DESTDIR)$(LIBDIR)/pkgconfig' '$(DESTDIR)$(INCLUDEDIR)/dflash'
	install -m 755 $(BUILD)/dflash-parity '$(DESTDIR)$(BINDIR)'
	install -m 644 $(STATIC) '$(DESTDIR)$(LIBDIR)'
	install -m 755 $(SHARED) '$(DESTDIR)$(LIBDIR)'
	ln -sf libdflash.so.$(VERSION) '$(DESTDIR)$(LIBDIR)/$(SONAME)'
	ln -sf $(SONAME) '$(DESTDIR)$(LIBDIR)/libdflash.so'
	install -m 644 $(BUILD)/dflash.pc '$(DESTDIR)$(LIBDIR)/pkgconfig'
	install -m 644 impl/include/dflash.h '$(DESTDIR)$(INCLUDEDIR)'
	install -m 644 impl/include/dflash/*.h '$(DESTDIR)$(INCLUDEDIR)/dflash'

uninstall:
	rm -f '$(DESTDIR)$(BINDIR)/dflash-parity' '$(DESTDIR)$(LIBDIR)/libdflash.a' '$(DESTDIR)$(LIBDIR)/libdflash.so' \
	    '$(DESTDIR)$(LIBDIR)/$(SONAME)' '$(DESTDIR)$(LIBDIR)/libdflash.so.$(VERSION)' \
	    '$(DESTDIR)$(LIBDIR)/pkgconfig/dflash.pc' '$(DESTDIR)$(INCLUDEDIR)/dflash.h'
	rm -rf '$(DESTDIR)$(INCLUDEDIR)/dflash'

# The example, linked with the drafter as the harness is, for the tests.
example: $(BUILD)/draft_loop
$(BUILD)/draft_loop: examples/draft_loop.c $(IMPL_OBJECTS)
	$(call say,CC,$<)$(CC) -Iimpl/include $(CFLAGS) $(LDFLAGS) -o $@ $^ $(CUDA_LIBS) $(PACKAGE_LIBS)

# The tracked files of this commit, the same bytes wherever it is made: times are the commit's, names are sorted.
DIST := dflash-parity-$(VERSION)
dist:
	@mkdir -p $(BUILD)
	git archive --format=tar --prefix=$(DIST)/ HEAD | gzip -n9 >$(BUILD)/$(DIST).tar.gz
	@cd $(BUILD) && sha256sum $(DIST).tar.gz
