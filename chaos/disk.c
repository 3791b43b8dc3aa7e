/* A disk whose power can fail, and that can be full: a FUSE file system over a folder.

   disk FOLDER MOUNT SWITCHES

   Reads and writes go to FOLDER at once. Of each file that was changed since its last fsync the disk
   remembers what was there: the length, and every block before it was first overwritten. fsync,
   fdatasync and O_DSYNC forget that. To unmount is to lose power: what is still remembered is put back,
   and for each file that lost something a line "BYTES PATH" is printed.

   SWITCHES is a file of two bytes, mapped by whoever sets them:
     [0] full: writes and new files fail with ENOSPC;
     [1] sync: 0 as usual, 1 an fsync waits (two seconds at most) and then fails with EIO, 2 it fails at once.

   fsync of the top folder makes everything durable, as sync(2) does. Names (create, rename, unlink, mkdir)
   are durable at once and in order, as with a journal: a new file that was never synced is left empty, and a
   rename over an old one without fsync loses both contents. Nothing is promised of names that a power loss
   might undo, nor of a block that it might tear. */

#define FUSE_USE_VERSION 312
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fuse.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { BLOCK = 4096, BUCKETS = 1024, FULL = 0, SYNC = 1, USUAL = 0, WAITS = 1 };
enum { LONGEST = 2000 }; /* ms: who waits cannot be killed, and whoever set the switch may be gone */

static int root;
static volatile char *switches;

/* What is remembered ------------------------------------------------------------------------ */

struct file {
  struct file *next;
  ino_t inode;
  int fd; /* of our own: while it is open no other file can get this inode */
  off_t size;
  char **blocks; /* as they were, for those that were overwritten */
};

static struct file *files[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static off_t count(off_t size) { return (size + BLOCK - 1) / BLOCK; }

static struct file **find(ino_t inode) {
  struct file **place = &files[inode % BUCKETS];
  while (*place && (*place)->inode != inode) place = &(*place)->next;
  return place;
}

static void drop(struct file **place) {
  struct file *file = *place;
  *place = file->next;
  for (off_t n = 0; n < count(file->size); n++) free(file->blocks[n]);
  free(file->blocks);
  close(file->fd);
  free(file);
}

/* Before these bytes are changed, and perhaps the length; the mutex is held. */
static void remember(int fd, off_t begin, off_t end) {
  struct stat now;
  fstat(fd, &now);
  struct file **place = find(now.st_ino), *file = *place;
  if (!file) {
    file = *place = calloc(1, sizeof *file);
    file->inode = now.st_ino;
    file->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    file->size = now.st_size;
    file->blocks = calloc(count(file->size) + 1, sizeof *file->blocks);
    if (file->fd < 0 || !file->blocks) abort(); /* better no disk than one that forgets too little */
  }
  if (end > file->size) end = file->size;
  for (off_t n = begin / BLOCK; n * BLOCK < end; n++)
    if (!file->blocks[n]) {
      file->blocks[n] = calloc(1, BLOCK);
      if (pread(file->fd, file->blocks[n], BLOCK, n * BLOCK) < 0) abort();
    }
}

static int synced(int fd) {
  for (int n = 0; switches[SYNC] == WAITS && n < LONGEST; n++) usleep(1000);
  if (switches[SYNC] != USUAL) return -EIO;
  struct stat now;
  fstat(fd, &now);
  pthread_mutex_lock(&mutex);
  struct file **place = find(now.st_ino);
  int changed = *place != NULL;
  if (changed) drop(place);
  pthread_mutex_unlock(&mutex);
  return changed && fdatasync(fd) ? -errno : 0;
}

static void all_synced(void) {
  pthread_mutex_lock(&mutex);
  for (int n = 0; n < BUCKETS; n++)
    while (files[n]) drop(&files[n]);
  pthread_mutex_unlock(&mutex);
}

static long put_back(struct file *file) {
  struct stat now;
  char block[BLOCK];
  fstat(file->fd, &now);
  long lost = now.st_size > file->size ? now.st_size - file->size : 0;
  if (ftruncate(file->fd, file->size)) abort();
  for (off_t n = 0; n < count(file->size); n++) {
    if (!file->blocks[n]) continue;
    off_t size = file->size - n * BLOCK < BLOCK ? file->size - n * BLOCK : BLOCK;
    memset(block, 0, BLOCK);
    if (pread(file->fd, block, size, n * BLOCK) < 0) abort();
    for (off_t at = 0; at < size; at++) lost += block[at] != file->blocks[n][at];
    if (pwrite(file->fd, file->blocks[n], size, n * BLOCK) != size) abort();
  }
  return now.st_nlink ? lost : 0;
}

static void lose(void) {
  char link[64], path[4096];
  for (int n = 0; n < BUCKETS; n++)
    while (files[n]) {
      long lost = put_back(files[n]);
      snprintf(link, sizeof link, "/proc/self/fd/%d", files[n]->fd);
      ssize_t size = readlink(link, path, sizeof path - 1);
      if (lost && size > 0) printf("%ld %.*s\n", lost, (int)size, path);
      drop(&files[n]);
    }
}

static int cut(int fd, off_t size) {
  struct stat now;
  if (fstat(fd, &now)) return -errno;
  if (switches[FULL] && size > now.st_size) return -ENOSPC;
  pthread_mutex_lock(&mutex);
  remember(fd, size, now.st_size);
  int failed = ftruncate(fd, size);
  pthread_mutex_unlock(&mutex);
  return failed ? -errno : 0;
}

/* The file system --------------------------------------------------------------------------- */

static const char *at(const char *path) { return path[1] ? path + 1 : "."; }
static int done(int answer) { return answer < 0 ? -errno : 0; }

/* The disk is root's, what is made on it is its maker's. */
static int owned(const char *path, int answer) {
  struct fuse_context *who = fuse_get_context();
  return answer < 0 ? -errno : done(fchownat(root, at(path), who->uid, who->gid, AT_SYMLINK_NOFOLLOW));
}

static void *begin(struct fuse_conn_info *conn, struct fuse_config *config) {
  config->use_ino = config->nullpath_ok = config->hard_remove = config->kernel_cache = 1;
  config->entry_timeout = config->attr_timeout = config->negative_timeout = 3600;
  conn->want &= ~FUSE_CAP_AUTO_INVAL_DATA; /* nobody else writes to the folder */
  return NULL;
}
static int get_attributes(const char *path, struct stat *about, struct fuse_file_info *open) {
  if (open) return done(fstat(open->fh, about));
  return done(fstatat(root, at(path), about, AT_SYMLINK_NOFOLLOW));
}
static int read_link(const char *path, char *target, size_t room) {
  ssize_t size = readlinkat(root, at(path), target, room - 1);
  if (size >= 0) target[size] = 0;
  return done(size);
}
static int make_folder(const char *path, mode_t mode) {
  return switches[FULL] ? -ENOSPC : owned(path, mkdirat(root, at(path), mode));
}
static int make_link(const char *target, const char *path) {
  return switches[FULL] ? -ENOSPC : owned(path, symlinkat(target, root, at(path)));
}
static int remove_file(const char *path) { return done(unlinkat(root, at(path), 0)); }
static int remove_folder(const char *path) { return done(unlinkat(root, at(path), AT_REMOVEDIR)); }
static int rename_file(const char *path, const char *to, unsigned flags) {
  return done(renameat2(root, at(path), root, at(to), flags));
}
static int link_file(const char *path, const char *to) {
  return switches[FULL] ? -ENOSPC : done(linkat(root, at(path), root, at(to), 0));
}
static int set_mode(const char *path, mode_t mode, struct fuse_file_info *open) {
  return done(open ? fchmod(open->fh, mode) : fchmodat(root, at(path), mode, 0));
}
static int set_owner(const char *path, uid_t user, gid_t group, struct fuse_file_info *open) {
  if (open) return done(fchown(open->fh, user, group));
  return done(fchownat(root, at(path), user, group, AT_SYMLINK_NOFOLLOW));
}
static int set_times(const char *path, const struct timespec times[2], struct fuse_file_info *open) {
  if (open) return done(futimens(open->fh, times));
  return done(utimensat(root, at(path), times, AT_SYMLINK_NOFOLLOW));
}
static int set_size(const char *path, off_t size, struct fuse_file_info *open) {
  if (open) return cut(open->fh, size);
  int fd = openat(root, at(path), O_RDWR | O_CLOEXEC);
  if (fd < 0) return -errno;
  int answer = cut(fd, size);
  close(fd);
  return answer;
}
/* For reading too, or nothing could be remembered; offsets and alignment are the kernel's business. */
static int open_file(const char *path, struct fuse_file_info *open) {
  int flags = (open->flags & O_ACCMODE) == O_RDONLY ? O_RDONLY : O_RDWR;
  int fd = openat(root, at(path), flags | O_CLOEXEC);
  if (fd < 0) return -errno;
  open->fh = fd;
  int answer = open->flags & O_TRUNC ? cut(fd, 0) : 0;
  if (answer) close(fd);
  return answer;
}
static int create_file(const char *path, mode_t mode, struct fuse_file_info *open) {
  if (switches[FULL]) return -ENOSPC;
  int fd = openat(root, at(path), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (fd < 0) return errno == EEXIST && !(open->flags & O_EXCL) ? open_file(path, open) : -errno;
  open->fh = fd;
  return owned(path, fd);
}
static int close_file(const char *path, struct fuse_file_info *open) {
  (void)path;
  close(open->fh);
  return 0;
}
static int read_file(const char *path, char *data, size_t size, off_t from, struct fuse_file_info *open) {
  (void)path;
  ssize_t got = pread(open->fh, data, size, from);
  return got < 0 ? -errno : got;
}
static int write_file(const char *path, const char *data, size_t size, off_t to,
                      struct fuse_file_info *open) {
  (void)path;
  if (switches[FULL] && !open->writepage) return -ENOSPC; /* pages that are mapped have their room */
  pthread_mutex_lock(&mutex);
  remember(open->fh, to, to + size);
  ssize_t wrote = pwrite(open->fh, data, size, to);
  int failed = wrote < 0 ? -errno : 0;
  pthread_mutex_unlock(&mutex);
  if (!failed && open->flags & O_DSYNC) failed = synced(open->fh);
  return failed ? failed : wrote;
}
static int allocate(const char *path, int mode, off_t from, off_t size, struct fuse_file_info *open) {
  (void)path;
  if (mode) return -EOPNOTSUPP;
  if (switches[FULL]) return -ENOSPC;
  pthread_mutex_lock(&mutex);
  remember(open->fh, 0, 0);
  int failed = posix_fallocate(open->fh, from, size);
  pthread_mutex_unlock(&mutex);
  return -failed;
}
static int sync_file(const char *path, int data_only, struct fuse_file_info *open) {
  (void)path, (void)data_only;
  return synced(open->fh);
}
static int open_folder(const char *path, struct fuse_file_info *open) {
  int fd = openat(root, at(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  open->fh = fd;
  return done(fd);
}
static int sync_folder(const char *path, int data_only, struct fuse_file_info *open) {
  (void)path, (void)data_only;
  struct stat this, top;
  if (fstat(open->fh, &this) || fstat(root, &top)) return -errno;
  if (this.st_ino == top.st_ino) all_synced();
  return 0;
}
static int list(const char *path, void *names, fuse_fill_dir_t add, off_t from, struct fuse_file_info *open,
                enum fuse_readdir_flags flags) {
  (void)path, (void)from, (void)flags;
  int fd = openat(open->fh, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR *folder = fd < 0 ? NULL : fdopendir(fd);
  if (!folder) return -errno;
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat about = {.st_ino = entry->d_ino, .st_mode = entry->d_type << 12};
    add(names, entry->d_name, &about, 0, 0);
  }
  closedir(folder);
  return 0;
}
static int get_room(const char *path, struct statvfs *about) {
  (void)path;
  int answer = done(fstatvfs(root, about));
  if (switches[FULL]) about->f_bavail = about->f_bfree = 0;
  return answer;
}

static const struct fuse_operations operations = {
    .init = begin, .getattr = get_attributes, .readlink = read_link, .mkdir = make_folder,
    .symlink = make_link, .unlink = remove_file, .rmdir = remove_folder, .rename = rename_file,
    .link = link_file, .chmod = set_mode, .chown = set_owner, .utimens = set_times, .truncate = set_size,
    .open = open_file, .create = create_file, .release = close_file, .read = read_file,
    .write = write_file, .fallocate = allocate, .fsync = sync_file, .fsyncdir = sync_folder,
    .opendir = open_folder, .releasedir = close_file, .readdir = list, .statfs = get_room,
};

int main(int many, char **words) {
  if (many != 4) return 64;
  struct rlimit most;
  getrlimit(RLIMIT_NOFILE, &most);
  most.rlim_cur = most.rlim_max;
  setrlimit(RLIMIT_NOFILE, &most);
  umask(0);
  int fd = open(words[3], O_RDONLY | O_CLOEXEC);
  switches = mmap(NULL, 2, PROT_READ, MAP_SHARED, fd, 0);
  root = open(words[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0 || switches == MAP_FAILED) return 66;
  char options[] = "allow_other,default_permissions,max_threads=64,max_idle_threads=64,fsname=chaos";
  char *arguments[] = {words[0], "-f", "-o", options, words[2], NULL};
  int answer = fuse_main(5, arguments, &operations, NULL);
  lose();
  return answer;
}
